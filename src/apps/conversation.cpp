/// Asks, steps the engine, writes what comes.
#include "apps/conversation.h"

#include <chrono>
#include <utility>

#include "apps/interrupt.h"
#include "apps/output.h"
#include "server/openai_request.h"
#include "server/prompts.h"
#include "text/stream_decoder.h"

namespace baton {

void Conversation::reset() {
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
  auto said = generate();
  if (!said) {
    messages_.erase(messages_.size() - 1);
    return fail(said.error().code, said.error().message);
  }
  messages_.push_back(std::move(*said));
  return {};
}

/// The assistant's message.
Result<json::Value> Conversation::generate() {
  json::Value body{{"messages", messages_}};
  if (!options_.prefix.empty()) body["prefix"] = options_.prefix;
  if (!options_.tools.is_null()) body["tools"] = options_.tools;
  if (options_.temperature >= 0) body["temperature"] = options_.temperature;
  if (options_.max_tokens > 0) body["max_tokens"] = options_.max_tokens;
  BATON_TRY(const ChatRequest chat, parse_chat_request(body, model_.defaults, {model_.n_vocab, kMaxTopLogprobs}));
  BATON_TRY(const Target target, resolve_target(model_, prefixes_, chat.generation));
  BATON_TRY(const TokenizedPrompt prompt, tokenize_chat(model_, target.prefix, chat));
  Request request = std::move(engine_requests(model_, chat.generation, {}, {&prompt, 1}).front());
  StreamDecoder decoder(model_.tokenizer, {}, false, true);
  decoder.follow(request.prompt);
  BATON_TRY(const RequestId id, engine_.submit(std::move(request)));
  std::string text;
  const auto show = [&](const std::string& piece) {
    text += piece;
    write_output(piece);
    flush_output();
  };
  for (bool is_open = true; is_open;) {
    if (was_interrupted()) {
      clear_interrupt();
      engine_.cancel(id);
    }
    engine_.step();
    for (const Event& event : engine_.wait_events(std::chrono::milliseconds(0))) {
      for (const TokenOutput& token : event.tokens) show(decoder.push(token.token).text);
      stats_ = event.stats;
      if (!event.finished) continue;
      is_open = false;
      if (*event.finished == FinishReason::error) return fail(ErrorCode::internal, "the model's logits hold a NaN");
    }
  }
  show(decoder.finish().text);
  print_output("\n");
  return json::Value{{"role", "assistant"}, {"content", text}};
}

}  // namespace baton
