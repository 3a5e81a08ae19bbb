/// What all endpoints have in common that let the model write, and the handlers of chat and plain completions.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "io/json_dismantle.h"
#include "server/answer/budget.h"
#include "server/answer/request_bytes.h"
#include "server/dialects/openai/dialect.h"
#include "server/dialects/openai/frames.h"
#include "server/http/error_body.h"
#include "server/http/json_body.h"
#include "server/request/chat_dismantle.h"
#include "server/request/stamp.h"
#include "server/routes/routes.h"
#include "server/served/tool_grammar.h"

namespace baton {
namespace {

using json::Value;

/// The writer of an OpenAI answer, whatever the prompt is.
MakeAnswerWriter openai_writer(const Target&, const Request&) { return OpenaiWriter::make; }

/// What the render endpoints answer for a prompt.
Value rendered_prompt(const AnswerHeader& header, const TokenizedPrompt& prompt) {
  Value rendered;
  rendered["request_id"] = header.id;
  rendered["model"] = header.model;
  rendered["token_ids"] = prompt.tokens;
  rendered["features"] = nullptr;
  return rendered;
}

}  // namespace

/// Gives requests to the engine in the name of their sender. A salt covers what no registered prefix makes public.
void Routes::sign(const Caller& caller, std::span<Request> requests) const {
  for (Request& request : requests) {
    request.tenant = caller.tenant;
    if (request.scope.salt.empty()) continue;
    request.scope.salt_from = std::max(request.scope.salt_from, context_.prefixes.n_public(request.prompt));
  }
}

AnswerHeader Routes::answer_header(const HttpRequest& request, const GenerationRequest& generation, std::string_view kind,
                                   std::string model) const {
  const std::string_view given = request.header("x-request-id");
  const bool is_usable = !given.empty() && given.size() <= kMaxRequestIdBytes &&
                         std::ranges::all_of(given, [](char c) { return c > ' ' && c <= '~'; });
  const std::string id = generation.request_id ? *generation.request_id : is_usable ? std::string(given) : random_id();
  return {kind != kCompletionIds, std::string(kind) + id, unix_seconds(), std::move(model), "baton-" + options_.version};
}

/// Submits a conversation. `ids`: the beginning of its answer's id.
Result<void> Routes::begin_conversation(const Call& call, ChatRequest chat, std::string_view ids, const WriterOf& writer_of) {
  const ChatDismantling end_of_chat(chat);
  BATON_TRY(Target target, resolve_target(context_.model, context_.prefixes, chat.generation));
  // First, because it refuses tools that the model would not see.
  BATON_TRY(const std::string text, render_chat(context_.model, target.prefix, chat, is_unwanted(call.exchange)));
  BATON_TRY_VOID(demand_calls(context_.model, chat));
  const parsers::MessageFormat& format = context_.model.format;
  BATON_TRY_VOID(allow_reasoning(context_.model, format.may_reason(text), format.begins_in_reasoning(text), chat.generation));
  BATON_TRY(const std::optional<Constraint> constraint, constrain(call, chat.generation));
  if (!constraint) return {};
  BATON_TRY(TokenizedPrompt prompt, tokenize_rendered(context_.model, target.prefix, chat, text, is_unwanted(call.exchange)));
  BATON_TRY_VOID(set_reading(context_.model, prompt, chat, is_unwanted(call.exchange)));
  chat.generation.cache_salt = cache_salt_of(call.caller, chat.generation.cache_salt);
  std::vector<Request> all = engine_requests(context_.model, chat.generation, *constraint, {&prompt, 1});
  sign(call.caller, all);
  const MakeAnswerWriter make_writer = writer_of(target, all[0]);
  std::vector<AnswerPrompt> prompts(1);
  prompts[0].tokens = std::move(prompt.tokens);
  BATON_TRY(BudgetShare scores,
            take_scores(context_.budgets, chat.generation, /*is_chat=*/true, prompts, context_.model.max_model_len));
  BATON_TRY(BudgetShare bytes, take_request_bytes(context_.budgets.requests, chat.generation, prompts));
  if (target.prefix) context_.prefixes.count_hit(target.prefix->definition.name);
  AnswerHeader header = answer_header(call.request, chat.generation, ids, std::move(target.model));
  auto answer = std::make_unique<Answer>(std::move(header), std::move(chat.generation), std::move(prompts),
                                         context_.model.tokenizer, make_writer);
  answer->keep(std::move(scores), std::move(bytes));
  return context_.service.begin(call.exchange, std::move(answer), std::move(all));
}

Result<void> Routes::begin_chat(const Call& call) {
  BATON_TRY(Value body, body_of(call));
  const json::Dismantling end_of_body(body);
  BATON_TRY(ChatRequest chat, parse_chat_request(body, context_.model.defaults, limits()));
  log_unknown_fields(chat.generation.unknown_fields);
  return begin_conversation(call, std::move(chat), kChatCompletions.ids, openai_writer);
}

Result<void> Routes::begin_completion(const Call& call) {
  BATON_TRY(Value body, body_of(call));
  const json::Dismantling end_of_body(body);
  BATON_TRY(CompletionRequest completion, parse_completion_request(body, context_.model.defaults, limits()));
  log_unknown_fields(completion.generation.unknown_fields);
  BATON_TRY(Target target, resolve_target(context_.model, context_.prefixes, completion.generation));
  BATON_TRY(const std::optional<Constraint> constraint, constrain(call, completion.generation));
  if (!constraint) return {};
  const SamplingParams& sampling = completion.generation.sampling;
  const bool has_nothing_to_do = sampling.max_tokens == 0 && sampling.n_prompt_logprobs < 0;
  if (target.prefix && completion.generation.echoes_logprobs)
    return fail(ErrorCode::invalid_request,
                "'logprobs' with 'echo' is not supported by this server together with a prefix; the value accepted is null",
                "logprobs");
  std::vector<TokenizedPrompt> tokenized;
  std::vector<AnswerPrompt> prompts;
  for (const Prompt& given : completion.prompts) {
    BATON_TRY(TokenizedPrompt prompt,
              tokenize_completion(context_.model, target.prefix, completion, given, is_unwanted(call.exchange)));
    prompts.push_back({prompt.tokens, std::move(prompt.echo)});
    tokenized.push_back(std::move(prompt));
  }
  completion.generation.cache_salt = cache_salt_of(call.caller, completion.generation.cache_salt);
  std::vector<Request> all = engine_requests(context_.model, completion.generation, *constraint, tokenized);
  sign(call.caller, all);
  BATON_TRY(BudgetShare scores,
            take_scores(context_.budgets, completion.generation, /*is_chat=*/false, prompts, context_.model.max_model_len));
  BATON_TRY(BudgetShare bytes, take_request_bytes(context_.budgets.requests, completion.generation, prompts));
  if (target.prefix) context_.prefixes.count_hit(target.prefix->definition.name);
  AnswerHeader header = answer_header(call.request, completion.generation, kCompletionIds, std::move(target.model));
  auto answer = std::make_unique<Answer>(std::move(header), std::move(completion.generation), std::move(prompts),
                                         context_.model.tokenizer, OpenaiWriter::make);
  answer->keep(std::move(scores), std::move(bytes));
  if (!has_nothing_to_do) return context_.service.begin(call.exchange, std::move(answer), std::move(all));
  std::string frames = answer->take_nothing();
  context_.service.send_finished(call.exchange, std::move(answer), std::move(frames));
  return {};
}

Routes::Response Routes::begin(const Call& call, Result<void> (Routes::*begin_answer)(const Call&)) {
  if (context_.engine.is_draining()) return error_response(503, "the server is shutting down", {});
  if (auto begun = (this->*begin_answer)(call); !begun) return logged_error_response(begun.error());
  return std::nullopt;
}

Routes::Response Routes::chat_completions(const Call& call) { return begin(call, &Routes::begin_chat); }

Routes::Response Routes::completions(const Call& call) { return begin(call, &Routes::begin_completion); }

/// The ids of a prompt as the model would get it, under the names that vLLM gives them.
Routes::Response Routes::render_chat_prompt(const Call& call) {
  const auto render = [&]() -> Result<Value> {
    BATON_TRY(Value body, body_of(call));
    const json::Dismantling end_of_body(body);
    BATON_TRY(ChatRequest chat, parse_chat_request(body, context_.model.defaults, limits()));
    const ChatDismantling end_of_chat(chat);
    BATON_TRY(const Target target, resolve_target(context_.model, context_.prefixes, chat.generation));
    BATON_TRY(const TokenizedPrompt prompt, tokenize_chat(context_.model, target.prefix, chat, is_unwanted(call.exchange)));
    return rendered_prompt(answer_header(call.request, chat.generation, kChatCompletions.ids, target.model), prompt);
  };
  const auto rendered = render();
  return rendered ? json_response(*rendered) : logged_error_response(rendered.error());
}

Routes::Response Routes::render_completion_prompts(const Call& call) {
  const auto render = [&]() -> Result<Value> {
    BATON_TRY(Value body, body_of(call));
    const json::Dismantling end_of_body(body);
    BATON_TRY(const CompletionRequest completion, parse_completion_request(body, context_.model.defaults, limits()));
    BATON_TRY(const Target target, resolve_target(context_.model, context_.prefixes, completion.generation));
    const AnswerHeader header = answer_header(call.request, completion.generation, kCompletionIds, target.model);
    Value list = Value::array();
    for (const Prompt& given : completion.prompts) {
      BATON_TRY(const TokenizedPrompt prompt,
                tokenize_completion(context_.model, target.prefix, completion, given, is_unwanted(call.exchange)));
      list.push_back(rendered_prompt(header, prompt));
    }
    return list;
  };
  const auto rendered = render();
  return rendered ? json_response(*rendered) : logged_error_response(rendered.error());
}

}  // namespace baton
