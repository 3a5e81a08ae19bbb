/// The endpoints that let the model write, count what it would read, or show it: handlers of Routes.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/limits/thread_time.h"
#include "core/log.h"
#include "core/one_line.h"
#include "io/json_dismantle.h"
#include "server/dialects/openai/dialect.h"
#include "server/http/json_body.h"
#include "server/request/generation.h"
#include "server/routes/routes.h"

namespace baton {
namespace {

using json::Value;

/// What the render endpoints answer for a prompt.
Value rendered_prompt(const AnswerHeader& header, const TokenizedPrompt& prompt) {
  return {{"request_id", header.id}, {"model", header.model}, {"token_ids", prompt.tokens}, {"features", nullptr}};
}

/// A grammar that takes a thread more of a processor's time is compiled as long work. A schema of 10 KB takes a fifth to a third.
constexpr std::chrono::milliseconds kShortCompile{30};
/// Compiling a byte of a grammar costs about as much as parsing and encoding so many bytes of text.
constexpr std::size_t kTextOfGrammar = 20;
constexpr std::size_t kMaxIgnoredShown = 10;
constexpr std::size_t kMaxLoggedGrammars = 100;

}  // namespace

/// Logs which keywords of a schema have no effect, the same ones once.
void Routes::log_ignored(const std::string& field, const std::vector<std::string>& keywords) {
  if (keywords.empty()) return;
  const std::span<const std::string> shown(keywords.data(), std::min(keywords.size(), kMaxIgnoredShown));
  std::string list = fmt::format("{}", fmt::join(shown, ", "));
  if (shown.size() < keywords.size()) list += fmt::format(" and {} more", keywords.size() - shown.size());
  const MutexLock lock(mutex_);
  if (logged_keywords_.size() >= kMaxLoggedGrammars || !logged_keywords_.insert(list).second) return;
  log::info("event=schema_keywords_ignored field={} keywords={}", log_value(field), log_value(list));
}

void Routes::prepare_grammars() {
  TextQueue::Work work;
  work.n_bytes = TextQueue::kLongBytes + 1;
  work.run = [this] { context_.model.grammars->build_vocabulary(context_.model.tokenizer); };
  texts_.push(std::move(work));
}

/// The constraint of a request's grammar. nullopt: it takes long, and the request was queued again as long work.
Result<std::optional<Constraint>> Routes::constrain(const Call& call, const GenerationRequest& generation) {
  if (!generation.grammar) return Constraint{};
  bool takes_long = !call.is_long && !context_.model.grammars->has_vocabulary();
  const auto end = thread_time() + kShortCompile;
  const auto is_cancelled = [&, is_unwanted = is_unwanted(call.exchange)] {
    takes_long = takes_long || (!call.is_long && thread_time() >= end);
    return takes_long || is_unwanted();
  };
  if (!takes_long) {
    auto made = constraint_of(context_.model, generation, cache_salt_of(call.caller, generation.cache_salt), is_cancelled);
    if (made) {
      log_ignored(generation.grammar->field, made->ignored);
      return std::move(made->constraint);
    }
    if (!takes_long) return tl::unexpected<Error>(std::move(made.error()));
  }
  // The handler begins again.
  if (!queue(call.shared_from_this(), TextQueue::kLongBytes + kTextOfGrammar * (1 + generation.grammar->source.text.size())))
    return fail(ErrorCode::unavailable, "too many requests wait for this server to compile their grammars; please try again");
  return std::optional<Constraint>{};
}

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
  // A grammar that fails while the answer is written has the client's name, too.
  if (auto& grammar = conversation->chat.generation.grammar; grammar && conversation->words)
    grammar->field = conversation->words({ErrorCode::invalid_request, {}, grammar->field}).param;
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
