/// Asks, steps the engine, writes what comes.
#include "apps/conversation.h"

#include <chrono>
#include <utility>

#include "apps/chat_answer.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "server/answer/choice.h"
#include "server/prompt/prompts.h"
#include "server/request/generation.h"
#include "server/served/grammars.h"

namespace baton {

void Conversation::reset() {
  open_calls_.clear();
  messages_ = json::Value::array();
  if (!options_.system.empty()) messages_.push_back({{"role", "system"}, {"content", options_.system}});
}

void Conversation::use_system(std::string text) {
  options_.system = std::move(text);
  reset();
}

void Conversation::use_prefix(std::string name) {
  options_.prefix = std::move(name);
  reset();
}

void Conversation::use_tools(json::Value tools) {
  options_.tools = std::move(tools);
  reset();
}

Result<void> Conversation::answer(const std::string& text) {
  messages_.push_back({{"role", "user"}, {"content", text}});
  auto done = go_on(options_.tool_choice);
  if (!done) messages_.erase(messages_.size() - 1);
  return done;
}

Result<void> Conversation::give_result(const std::string& text) {
  const OpenCall call = open_calls_.front();
  open_calls_.pop_front();
  messages_.push_back({{"role", "tool"}, {"tool_call_id", call.id}, {"name", call.name}, {"content", text}});
  if (!open_calls_.empty()) return {};
  auto done = go_on({});
  if (done) return done;
  messages_.erase(messages_.size() - 1);
  open_calls_.push_front(call);
  return done;
}

/// Adds the assistant's next message.
Result<void> Conversation::go_on(const std::string& tool_choice) {
  auto said = generate(tool_choice);
  if (!said) return fail(said.error().code, said.error().message);
  if (const json::Value* calls = json::find(*said, "tool_calls"))
    for (const json::Value& call : *calls) open_calls_.push_back({call["id"], call["function"]["name"]});
  messages_.push_back(std::move(*said));
  return {};
}

/// The body of the chat completion that asks for the next message.
json::Value Conversation::request_body(const std::string& tool_choice) const {
  json::Value body{{"messages", messages_}};
  if (!options_.prefix.empty()) body["prefix"] = options_.prefix;
  if (!options_.tools.is_null()) body["tools"] = options_.tools;
  if (options_.temperature >= 0) body["temperature"] = options_.temperature;
  if (options_.max_tokens > 0) body["max_tokens"] = options_.max_tokens;
  if (tool_choice.empty() || options_.tools.is_null()) return body;
  if (tool_choice == "auto" || tool_choice == "none" || tool_choice == "required")
    body["tool_choice"] = tool_choice;
  else
    body["tool_choice"] = {{"type", "function"}, {"function", {{"name", tool_choice}}}};
  return body;
}

/// The assistant's message.
Result<json::Value> Conversation::generate(const std::string& tool_choice) {
  BATON_TRY(ChatRequest chat,
            parse_chat_request(request_body(tool_choice), model_.defaults, {model_.n_vocab, kMaxTopLogprobs}));
  BATON_TRY(const ModelAndPrefix target, resolve_target(model_, prefixes_, chat.generation));
  // First, because it refuses tools that the model would not see.
  BATON_TRY(const TokenizedPrompt prompt, tokenize_chat(model_, target.prefix, chat));
  BATON_TRY_VOID(demand_calls(model_, chat));
  BATON_TRY_VOID(allow_reasoning(model_, prompt.begin, chat.generation));
  BATON_TRY(const Grammars::Constrained constrained, constraint_of(model_, chat.generation));
  BATON_TRY_VOID(set_reading(model_, prompt, chat));
  Request request = std::move(engine_requests(model_, chat.generation, constrained.constraint, {&prompt, 1}).front());
  AnswerChoice choice(chat.generation, {request.prompt, {}}, model_.tokenizer);
  BATON_TRY(const RequestId id, engine_.submit(std::move(request)));
  ChatAnswer answer([](std::string_view text) { write_output(text); });
  while (!choice.has_ended()) {
    if (was_interrupted()) {
      clear_interrupt();
      engine_.cancel(id);
    }
    engine_.step();
    for (const Event& event : engine_.wait_events(std::chrono::milliseconds(0))) {
      if (event.finished == FinishReason::error) return fail(ErrorCode::internal, "the model's logits hold a NaN");
      const bool is_enough = choice.take(event);
      stats_ = choice.stats();
      answer.take(choice.pieces());
      choice.clear();
      flush_output();
      if (is_enough) engine_.cancel(id);
    }
  }
  answer.end();
  while (engine_.step()) engine_.wait_events(std::chrono::milliseconds(0));
  return answer.message();
}

}  // namespace baton
