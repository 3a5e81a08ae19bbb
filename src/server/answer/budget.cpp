/// Counting and refusing.
#include "server/answer/budget.h"
#include "server/request/json_fields.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace baton {
namespace {

constexpr std::int64_t kIdBytes = 8;  // of a token id as text

/// The field that most of the count comes from.
std::string_view costly_field(const ScoreCount& count, const GenerationRequest& request, bool is_chat) {
  if (count.of_copies > std::max(count.of_prompts, count.of_answers))
    return request.wants_token_ids ? "return_token_ids" : "echo";
  if (count.of_prompts > count.of_answers && !request.echoes_logprobs) return "prompt_logprobs";
  return is_chat ? "top_logprobs" : "logprobs";
}

/// A waiting sequence: its state in the engine, its choice of the answer, and its places in tables.
constexpr std::int64_t kSequenceBytes = 2048;
/// A string or a list in a list, besides its elements: the object and the allocator's share.
constexpr std::int64_t kItemBytes = 48;

}  // namespace

std::int64_t request_bytes(const GenerationRequest& request, std::span<const AnswerPrompt> prompts) {
  const auto size = [](const auto& list) { return static_cast<std::int64_t>(list.size()); };
  const std::int64_t n = request.n;
  const SamplingParams& sampling = request.sampling;
  std::int64_t bytes = size(sampling.allowed_ids) * static_cast<std::int64_t>(sizeof(TokenId)) +
                       size(sampling.logit_bias) * static_cast<std::int64_t>(sizeof(TokenBias)) + size(request.cache_salt);
  if (request.grammar) bytes += size(request.grammar->source.text);
  for (const std::string& stop : request.stop) bytes += kItemBytes + size(stop);
  // In two spellings, of at most a token a byte.
  for (const std::string& word : request.bad_words) bytes += kItemBytes + size(word) + 2 * (kItemBytes + 4 * size(word));
  if (request.reading.tools) bytes += static_cast<std::int64_t>(request.reading.tools->n_bytes());
  for (const AnswerPrompt& prompt : prompts) {
    bytes += size(prompt.tokens) * static_cast<std::int64_t>(sizeof(TokenId));
    // Each choice begins with the echo, and each sequence has the salt twice.
    bytes += size(prompt.echo) + n * (kSequenceBytes + size(prompt.echo) + 2 * size(request.cache_salt));
  }
  return bytes;
}

Result<BudgetShare> take_request_bytes(Budget& budget, const GenerationRequest& request,
                                       std::span<const AnswerPrompt> prompts) {
  const std::int64_t bytes = request_bytes(request, prompts);
  if (bytes > budget.most_of_one())
    return fail(ErrorCode::too_large,
                fmt::format("the request's {} prompts and {} sequences take {} bytes of memory; this server keeps {} for one "
                            "request (--client-memory-bytes)",
                            prompts.size(), prompts.size() * static_cast<std::size_t>(request.n), bytes, budget.most_of_one()));
  BudgetShare share = budget.share();
  if (!share.grow(bytes))
    return fail(ErrorCode::unavailable,
                fmt::format("requests that wait or run take {} bytes of memory, this one would take {}; this server keeps {}: "
                            "try again later",
                            budget.used(), bytes, budget.limit()));
  return share;
}

ScoreCount count_scores(const GenerationRequest& request, bool is_chat, std::span<const AnswerPrompt> prompts,
                        std::int32_t max_model_len) {
  const SamplingParams& sampling = request.sampling;
  ScoreCount count;
  for (const AnswerPrompt& prompt : prompts) {
    const auto n_prompt = static_cast<std::int64_t>(prompt.tokens.size());
    const std::int64_t n_room = std::max<std::int64_t>(0, max_model_len - n_prompt);
    // A conversation's prompt is scored once in the answer, a text's in each choice.
    count.of_prompts += n_prompt * (1 + sampling.n_prompt_logprobs) * (is_chat ? 1 : request.n);
    const std::int64_t n_bytes =
        static_cast<std::int64_t>(prompt.echo.size()) + (request.wants_token_ids ? n_prompt * kIdBytes : 0);
    count.of_copies += n_bytes * request.n / kScoreBytes;
    // A stream's tokens are sent as they come.
    if (!request.is_stream)
      count.of_answers += std::min<std::int64_t>(n_room, sampling.max_tokens.value_or(max_model_len)) *
                          (1 + sampling.n_top_logprobs) * request.n;
  }
  return count;
}

Result<BudgetShare> take_scores(Budgets& budgets, const GenerationRequest& request, bool is_chat,
                                std::span<const AnswerPrompt> prompts, std::int32_t max_model_len) {
  const ScoreCount count = count_scores(request, is_chat, prompts, max_model_len);
  const std::int64_t limit = budgets.scores_per_answer;
  const std::int64_t n_before_stream = request.is_stream ? count.of_prompts + count.of_copies : 0;
  if (count.total() > limit || n_before_stream > kMaxScoresBeforeStream) {
    const bool is_stream_too_long = count.total() <= limit;
    const std::string_view field = costly_field(count, request, is_chat);
    return bad(field,
               "'{}': tokens x (1 + alternatives) x choices come to {} log-probabilities of prompts and up to {} of "
               "the answer (n = {}), and repeated prompts to the bytes of {}; this server puts {} into {}",
               field, count.of_prompts, count.of_answers, request.n, count.of_copies,
               is_stream_too_long ? kMaxScoresBeforeStream : limit,
               is_stream_too_long ? "the beginning of a stream, and more into an answer with 'stream' false" : "one answer");
  }
  BudgetShare share = budgets.scores.share();
  if (!share.grow(count.total()))
    return fail(ErrorCode::unavailable, fmt::format("the log-probabilities of answers in hand are {}; this server keeps {}",
                                                    budgets.scores.used(), budgets.scores.limit()));
  return share;
}

}  // namespace baton
