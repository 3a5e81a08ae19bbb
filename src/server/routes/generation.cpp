/// The endpoints that let the model write, count what it would read, or show it: handlers of Routes.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/json_dismantle.h"
#include "server/dialects/openai/dialect.h"
#include "server/http/error_body.h"
#include "server/http/json_body.h"
#include "server/request/chat_dismantle.h"
#include "server/routes/routes.h"

namespace baton {
namespace {

using json::Value;

/// What the render endpoints answer for a prompt.
Value rendered_prompt(const AnswerHeader& header, const TokenizedPrompt& prompt) {
  return {{"request_id", header.id}, {"model", header.model}, {"token_ids", prompt.tokens}, {"features", nullptr}};
}

}  // namespace

/// What the dialect of a call needs to read it. The call outlives it.
ReadContext Routes::read_context(const Call& call) {
  return {.model = context_.model,
          .caller = call.caller,
          .budgets = context_.budgets,
          .responses = responses_,
          .prefixes = context_.prefixes,
          .bounds = limits(),
          .block_len = context_.engine.info().block_len,
          .n_body_bytes = call.request.body.size(),
          .is_unwanted = is_unwanted(call.exchange),
          .log_unknown_fields = [this](const std::vector<std::string>& fields) { log_unknown_fields(fields); },
          .goes_on_as_long_work = [this, &call](std::size_t n_bytes) { return goes_on_as_long_work(call, n_bytes); }};
}

/// What beginning an answer to a call takes. The call outlives it.
AnswerCall Routes::answer_call(const Call& call) {
  return {.model = context_.model,
          .prefixes = context_.prefixes,
          .budgets = context_.budgets,
          .dispatcher = context_.dispatcher,
          .exchange = call.exchange,
          .request = call.request,
          .caller = call.caller,
          .version = options_.version,
          .is_unwanted = is_unwanted(call.exchange),
          .constrain = [this, &call](const GenerationRequest& generation) { return constrain(call, generation); }};
}

Result<void> Routes::try_converse(const Call& call) {
  const AnswerCall answer = answer_call(call);
  const ReadContext context = read_context(call);
  BATON_TRY(Value body, body_of(call));
  const json::Dismantling end_of_body(body);
  BATON_TRY(std::optional<ConversationCall> conversation, call.dialect->read(body, context));
  if (!conversation) return {};
  return begin_conversation(answer, *call.dialect, std::move(*conversation));
}

Result<void> Routes::try_complete(const Call& call) {
  BATON_TRY(Value body, body_of(call));
  const json::Dismantling end_of_body(body);
  BATON_TRY(CompletionRequest completion, parse_completion_request(body, context_.model.defaults, limits()));
  log_unknown_fields(completion.generation.unknown_fields);
  return begin_completion(answer_call(call), std::move(completion));
}

Routes::Response Routes::begin(const Call& call, Result<void> (Routes::*begin_answer)(const Call&)) {
  if (context_.engine.is_draining()) return error_response(503, "the server is shutting down", {});
  if (auto begun = (this->*begin_answer)(call); !begun) return logged_error_response(begun.error());
  return std::nullopt;
}

Routes::Response Routes::converse(const Call& call) { return begin(call, &Routes::try_converse); }

Routes::Response Routes::completions(const Call& call) { return begin(call, &Routes::try_complete); }

Routes::Response Routes::count_tokens(const Call& call) {
  const auto count = [&]() -> Result<std::optional<Value>> {
    const ReadContext context = read_context(call);
    BATON_TRY(Value body, body_of(call));
    const json::Dismantling end_of_body(body);
    BATON_TRY(std::optional<ChatRequest> chat, call.dialect->read_to_count(body, context));
    if (!chat) return std::optional<Value>();
    const ChatDismantling end_of_chat(*chat);
    BATON_TRY(const ModelAndPrefix target, resolve_target(context_.model, context_.prefixes, chat->generation));
    const auto prompt = tokenize_chat(context_.model, target.prefix, *chat, context.is_unwanted);
    const auto excess = prompt ? std::nullopt : text_excess(context_.model, chat->messages);
    if (excess && prompt.error().code != ErrorCode::unavailable) return tl::unexpected<Error>(call.dialect->too_long(*excess));
    if (!prompt) return tl::unexpected<Error>(prompt.error());
    return std::optional<Value>(call.dialect->count_answer(body, prompt->tokens.size()));
  };
  const auto counted = count();
  if (!counted) return logged_error_response(counted.error());
  return *counted ? Response(json_response(**counted)) : std::nullopt;
}

/// The ids of a prompt as the model would get it, under the names that vLLM gives them.
Routes::Response Routes::render_chat_prompt(const Call& call) {
  const auto render = [&]() -> Result<Value> {
    BATON_TRY(Value body, body_of(call));
    const json::Dismantling end_of_body(body);
    BATON_TRY(ChatRequest chat, parse_chat_request(body, context_.model.defaults, limits()));
    const ChatDismantling end_of_chat(chat);
    BATON_TRY(const ModelAndPrefix target, resolve_target(context_.model, context_.prefixes, chat.generation));
    BATON_TRY(const TokenizedPrompt prompt, tokenize_chat(context_.model, target.prefix, chat, is_unwanted(call.exchange)));
    return rendered_prompt(answer_header(call.request, chat.generation, kChatCompletions.ids, target.model, options_.version),
                           prompt);
  };
  const auto rendered = render();
  return rendered ? json_response(*rendered) : logged_error_response(rendered.error());
}

Routes::Response Routes::render_completion_prompts(const Call& call) {
  const auto render = [&]() -> Result<Value> {
    BATON_TRY(Value body, body_of(call));
    const json::Dismantling end_of_body(body);
    BATON_TRY(const CompletionRequest completion, parse_completion_request(body, context_.model.defaults, limits()));
    BATON_TRY(const ModelAndPrefix target, resolve_target(context_.model, context_.prefixes, completion.generation));
    const AnswerHeader header =
        answer_header(call.request, completion.generation, kCompletionIds, target.model, options_.version);
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
