/// Prompts, constraints and budgets of conversations and plain completions, and what both end with.
#include "server/routes/begin_answer.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "server/answer/answer.h"
#include "server/answer/budget.h"
#include "server/dialects/openai/dialect.h"
#include "server/prompt/prompts.h"
#include "server/request/generation.h"
#include "server/request/stamp.h"
#include "server/served/grammars.h"

namespace baton {
namespace {

/// A request for text with everything that the engine and the answer need.
struct Prepared {
  std::string_view ids;
  ModelAndPrefix target;
  GenerationRequest generation;
  std::vector<AnswerPrompt> prompts;
  std::vector<Request> requests;  // one for each prompt
};

/// Gives requests to the engine in the name of their sender. A salt covers what no registered prefix makes public.
void set_tenant_and_salt(const AnswerCall& call, std::span<Request> requests) {
  for (Request& request : requests) {
    request.tenant = call.caller.tenant;
    if (request.scope.salt.empty()) continue;
    request.scope.salt_from = std::max(request.scope.salt_from, call.prefixes.n_public(request.prompt));
  }
}

/// Takes what the answer needs of the budgets, and begins it. A completion that only repeats its prompt is answered at once.
Result<void> begin_prepared(const AnswerCall& call, Prepared prepared, const WriterOf& writer_of) {
  const bool is_chat = prepared.ids != kCompletionIds;
  GenerationRequest& generation = prepared.generation;
  const bool has_nothing_to_do = !is_chat && generation.sampling.max_tokens == 0 && generation.sampling.n_prompt_logprobs < 0;
  set_tenant_and_salt(call, prepared.requests);
  const MakeAnswerWriter make_writer = writer_of(prepared.target, prepared.requests[0]);
  BATON_TRY(BudgetShare scores, take_scores(call.budgets, generation, is_chat, prepared.prompts, call.model.max_model_len));
  BATON_TRY(BudgetShare bytes, take_request_bytes(call.budgets.requests, generation, prepared.prompts));
  if (prepared.target.prefix) call.prefixes.count_hit(prepared.target.prefix->definition.name);
  AnswerHeader header = answer_header(call.request, generation, prepared.ids, std::move(prepared.target.model), call.version);
  auto answer = std::make_unique<Answer>(std::move(header), std::move(generation), std::move(prepared.prompts),
                                         call.model.tokenizer, make_writer);
  answer->keep(std::move(scores), std::move(bytes));
  if (!has_nothing_to_do) return call.dispatcher.begin(call.exchange, std::move(answer), std::move(prepared.requests));
  std::string frames = answer->take_nothing();
  call.dispatcher.send_finished(call.exchange, std::move(answer), std::move(frames));
  return {};
}

/// Renders a conversation, encodes it and makes the engine's request of it. nullopt: it begins again as long work.
Result<std::optional<Prepared>> prepare_conversation(const AnswerCall& call, const Dialect& dialect,
                                                     ConversationCall& conversation) {
  ChatRequest& chat = conversation.chat;
  const auto too_long = [&](const ContextExcess& excess) { return tl::unexpected<Error>(dialect.too_long(excess)); };
  BATON_TRY(ModelAndPrefix target, resolve_target(call.model, call.prefixes, chat.generation));
  // First, because it refuses tools that the model would not see.
  const auto rendered = render_chat(call.model, target.prefix, chat, call.is_unwanted);
  // Where a template has ended at a limit of its own, that the texts are too long says more to the client.
  const auto excess_of_text = rendered ? text_excess(call.model, rendered->size()) : text_excess(call.model, chat.messages);
  if (excess_of_text && (rendered || rendered.error().code != ErrorCode::unavailable)) return too_long(*excess_of_text);
  if (!rendered) return tl::unexpected<Error>(rendered.error());
  const std::string& text = *rendered;
  BATON_TRY_VOID(demand_calls(call.model, chat));
  BATON_TRY_VOID(allow_reasoning(call.model, call.model.format.begin_after(text), chat.generation));
  BATON_TRY(const std::optional<Constraint> constraint, call.constrain(chat.generation));
  if (!constraint) return std::optional<Prepared>();
  BATON_TRY(TokenizedPrompt prompt, tokenize_rendered(call.model, target.prefix, chat, text, call.is_unwanted));
  const auto prompt_len = static_cast<std::int64_t>(prompt.tokens.size());
  if (const auto excess = context_excess(call.model, prompt_len, chat.generation.sampling)) return too_long(*excess);
  BATON_TRY_VOID(set_reading(call.model, prompt, chat, call.is_unwanted));
  chat.generation.cache_salt = cache_salt_of(call.caller, chat.generation.cache_salt);
  std::vector<Request> requests = engine_requests(call.model, chat.generation, *constraint, {&prompt, 1});
  std::vector<AnswerPrompt> prompts(1);
  prompts[0].tokens = std::move(prompt.tokens);
  return std::optional(
      Prepared{dialect.ids, std::move(target), std::move(chat.generation), std::move(prompts), std::move(requests)});
}

}  // namespace

AnswerHeader answer_header(const HttpRequest& request, const GenerationRequest& generation, std::string_view ids,
                           std::string model, std::string_view version) {
  const std::string_view given = request.header("x-request-id");
  const bool is_usable = !given.empty() && given.size() <= kMaxRequestIdBytes &&
                         std::ranges::all_of(given, [](char c) { return c > ' ' && c <= '~'; });
  const std::string id = generation.request_id ? *generation.request_id : is_usable ? std::string(given) : random_id();
  return {ids != kCompletionIds, std::string(ids) + id, unix_seconds(), std::move(model), "baton-" + std::string(version)};
}

Result<void> begin_conversation(const AnswerCall& call, const Dialect& dialect, ConversationCall conversation) {
  const ChatDismantling end_of_chat(conversation.chat);
  const auto begin = [&]() -> Result<void> {
    BATON_TRY(std::optional<Prepared> prepared, prepare_conversation(call, dialect, conversation));
    if (!prepared) return {};
    return begin_prepared(call, std::move(*prepared), conversation.writer_of);
  };
  auto begun = begin();
  if (!begun && conversation.words) begun.error() = conversation.words(std::move(begun.error()));
  return begun;
}

Result<void> begin_completion(const AnswerCall& call, CompletionRequest completion) {
  GenerationRequest& generation = completion.generation;
  BATON_TRY(ModelAndPrefix target, resolve_target(call.model, call.prefixes, generation));
  BATON_TRY(const std::optional<Constraint> constraint, call.constrain(generation));
  if (!constraint) return {};
  if (target.prefix && generation.echoes_logprobs)
    return fail(ErrorCode::invalid_request,
                "'logprobs' with 'echo' is not supported by this server together with a prefix; the value accepted is null",
                "logprobs");
  std::vector<TokenizedPrompt> tokenized;
  std::vector<AnswerPrompt> prompts;
  for (const Prompt& given : completion.prompts) {
    BATON_TRY(TokenizedPrompt prompt, tokenize_completion(call.model, target.prefix, completion, given, call.is_unwanted));
    prompts.push_back({prompt.tokens, std::move(prompt.echo)});
    tokenized.push_back(std::move(prompt));
  }
  generation.cache_salt = cache_salt_of(call.caller, generation.cache_salt);
  std::vector<Request> requests = engine_requests(call.model, generation, *constraint, tokenized);
  return begin_prepared(
      call, {kCompletionIds, std::move(target), std::move(generation), std::move(prompts), std::move(requests)}, openai_writer);
}

}  // namespace baton
