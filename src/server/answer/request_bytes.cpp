/// Adds up what a request keeps.
#include "server/answer/request_bytes.h"

#include <string>

#include <fmt/format.h>

namespace baton {
namespace {

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

}  // namespace baton
