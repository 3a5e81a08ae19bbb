/// Checks requests against the limits and makes their sequences.
#include "engine/schedule/request_check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "core/split_mix.h"
#include "kernels/batch.h"

namespace baton {
namespace {

/// A lower temperature is treated as greedy: dividing logits by it would only lose precision.
constexpr float kGreedyTemperature = 1e-5f;

template <class... Args>
tl::unexpected<Error> refuse(std::string param, fmt::format_string<Args...> message, Args&&... args) {
  return fail(ErrorCode::invalid_request, fmt::format(message, std::forward<Args>(args)...), std::move(param));
}

Result<void> check_tokens(std::span<const TokenId> tokens, std::int32_t n_vocab, const char* param) {
  for (const TokenId token : tokens)
    if (token < 0 || token >= n_vocab)
      return refuse(param, "{}: token id {} is outside this model's vocabulary of {} tokens", param, token, n_vocab);
  return {};
}

Result<void> check_lengths(const Request& request, const RequestLimits& limits) {
  if (request.prompt.empty()) return refuse("prompt", "the prompt is empty: at least one token is needed");
  const SamplingParams& sampling = request.sampling;
  const auto prompt_len = static_cast<std::int64_t>(request.prompt.size());
  const bool may_generate_nothing = sampling.n_prompt_logprobs >= 0;
  if (sampling.max_tokens && *sampling.max_tokens < (may_generate_nothing ? 0 : 1))
    return refuse("max_tokens", "max_tokens must be at least 1, got {}", *sampling.max_tokens);
  const bool generates_nothing = sampling.max_tokens == 0;
  if (prompt_len > limits.max_model_len || (prompt_len == limits.max_model_len && !generates_nothing))
    return fail(ErrorCode::invalid_request, context_excess_message(limits.max_model_len, prompt_len), "prompt");
  if (sampling.max_tokens && prompt_len + *sampling.max_tokens > limits.max_model_len)
    return fail(ErrorCode::invalid_request, context_excess_message(limits.max_model_len, prompt_len, sampling.max_tokens),
                "max_tokens");
  const auto max_tokens = sampling.max_tokens.value_or(limits.max_model_len - static_cast<std::int32_t>(prompt_len));
  if (sampling.min_tokens < 0 || sampling.min_tokens > max_tokens)
    return refuse("min_tokens", "min_tokens must be from 0 to max_tokens ({}), got {}", max_tokens, sampling.min_tokens);
  return {};
}

Result<void> check_sampling(const SamplingParams& sampling) {
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0)
    return refuse("temperature", "temperature must be 0 or more, got {}", sampling.temperature);
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) {
    return refuse("top_p", "top_p must be over 0 and at most 1, got {}", sampling.top_p);
  }
  if (sampling.top_k < 0) return refuse("top_k", "top_k must be 0 (off) or more, got {}", sampling.top_k);
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1))
    return refuse("min_p", "min_p must be from 0 (off) to 1, got {}", sampling.min_p);
  if (!(sampling.repetition_penalty > 0 && std::isfinite(sampling.repetition_penalty))) {
    return refuse("repetition_penalty", "repetition_penalty must be over 0 (1 is off), got {}", sampling.repetition_penalty);
  }
  for (const auto& [name, penalty] :
       {std::pair("presence_penalty", sampling.presence_penalty), std::pair("frequency_penalty", sampling.frequency_penalty)}) {
    if (!(penalty >= -kMaxPenalty && penalty <= kMaxPenalty))
      return refuse(name, "{} must be from {} to {}, got {}", name, -kMaxPenalty, kMaxPenalty, penalty);
  }
  for (const auto& [name, n] :
       {std::pair("top_logprobs", sampling.n_top_logprobs), std::pair("prompt_logprobs", sampling.n_prompt_logprobs)}) {
    if (n < -1 || n > kMaxTopLogprobs) return refuse(name, "{} must be from 0 to {}, got {}", name, kMaxTopLogprobs, n);
  }
  return {};
}

Result<void> check_count(const char* field, std::size_t n, std::size_t most) {
  if (n <= most) return {};
  return refuse(field, "{}: {} entries are more than the {} that are accepted", field, n, most);
}

Result<void> check_lists(const SamplingParams& sampling, std::int32_t n_vocab) {
  BATON_TRY_VOID(check_count("logit_bias", sampling.logit_bias.size(), kMaxLogitBiases));
  std::vector<TokenId> ids;
  for (const TokenBias& bias : sampling.logit_bias) {
    ids.push_back(bias.id);
    if (!(bias.bias >= -kMaxBias || std::isinf(bias.bias)) || !(bias.bias <= kMaxBias))
      return refuse("logit_bias", "logit_bias must be from {} to {}, got {} for token {}", -kMaxBias, kMaxBias, bias.bias,
                    bias.id);
  }
  BATON_TRY_VOID(check_tokens(ids, n_vocab, "logit_bias"));
  std::ranges::sort(ids);
  if (std::ranges::adjacent_find(ids) != ids.end()) return refuse("logit_bias", "logit_bias names a token twice");

  BATON_TRY_VOID(check_count("allowed_token_ids", sampling.allowed_ids.size(), kMaxAllowedIds));
  BATON_TRY_VOID(check_tokens(sampling.allowed_ids, n_vocab, "allowed_token_ids"));

  BATON_TRY_VOID(check_count("bad_words", sampling.bad_words.size(), kMaxBadWords));
  for (const std::vector<TokenId>& word : sampling.bad_words) {
    if (word.empty() || word.size() > kMaxBadWordTokens)
      return refuse("bad_words", "bad_words: a word must have from 1 to {} tokens, got {}", kMaxBadWordTokens, word.size());
    BATON_TRY_VOID(check_tokens(word, n_vocab, "bad_words"));
  }
  return {};
}

/// Checks that a step can hold the lists of one sequence, however long its answer becomes.
Result<void> check_step(const Request& request, const RequestLimits& limits) {
  const SamplingParams& sampling = request.sampling;
  const auto prompt_len = static_cast<std::int32_t>(request.prompt.size());
  const std::int32_t max_len = max_len_of(request, limits);
  const std::int32_t n_entries = max_list_entries(sampling, prompt_len, max_len);
  if (n_entries <= limits.max_list_entries) return {};
  const char* field = sampling.repetition_penalty != 1  ? "repetition_penalty"
                      : sampling.presence_penalty != 0  ? "presence_penalty"
                      : sampling.frequency_penalty != 0 ? "frequency_penalty"
                      : !sampling.allowed_ids.empty()   ? "allowed_token_ids"
                                                        : "logit_bias";
  return refuse(field,
                "{}: with {} tokens of prompt and answer, penalties, logit_bias, bad_words and "
                "allowed_token_ids come to {} entries, and a step holds {}",
                field, max_len, n_entries, limits.max_list_entries);
}

/// The stop ids of a sequence, without duplicates: the model's end-of-sequence ids, unless ignored, and the request's
/// own.
std::vector<TokenId> stop_ids_of(const SamplingParams& sampling, std::span<const TokenId> eos_token_ids) {
  std::vector<TokenId> ids;
  const auto add = [&](TokenId id) {
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  };
  if (!sampling.ignore_eos) std::ranges::for_each(eos_token_ids, add);
  std::ranges::for_each(sampling.stop_ids, add);
  return ids;
}

/// The ids in ascending order, each once: the same list if it is so already.
SharedList<TokenId> ascending(const SharedList<TokenId>& ids) {
  if (std::ranges::adjacent_find(ids, std::greater_equal<>()) == ids.end()) return ids;
  std::vector<TokenId> sorted(ids.begin(), ids.end());
  std::ranges::sort(sorted);
  sorted.erase(std::ranges::unique(sorted).begin(), sorted.end());
  return sorted;
}

}  // namespace

std::string context_excess_message(std::int32_t max_len, std::int64_t prompt_len, std::optional<std::int32_t> max_tokens,
                                   bool is_least) {
  const std::string limit = fmt::format("This model's maximum context length is {} tokens. However, ", max_len);
  if (!max_tokens)
    return fmt::format("{}the prompt has {}{} tokens, which leaves no room for an answer. Please shorten the prompt.", limit,
                       is_least ? "at least " : "", prompt_len);
  return fmt::format(
      "{}you requested {} tokens ({} in the prompt, {} in the completion). Please shorten the prompt or lower "
      "max_tokens.",
      limit, prompt_len + *max_tokens, prompt_len, *max_tokens);
}

Result<void> check_request(const Request& request, const RequestLimits& limits) {
  BATON_TRY_VOID(check_lengths(request, limits));
  BATON_TRY_VOID(check_sampling(request.sampling));
  BATON_TRY_VOID(check_lists(request.sampling, limits.n_vocab));
  BATON_TRY_VOID(check_step(request, limits));
  BATON_TRY_VOID(check_tokens(request.prompt, limits.n_vocab, "prompt"));
  BATON_TRY_VOID(check_tokens(request.sampling.stop_ids, limits.n_vocab, "stop_token_ids"));
  if (request.n_sequences < 1 || request.n_sequences > kMaxSequencesPerRequest)
    return refuse("n", "n must be from 1 to {}, got {}", kMaxSequencesPerRequest, request.n_sequences);
  const std::size_t n_stop_ids = stop_ids_of(request.sampling, limits.eos_token_ids).size();
  if (n_stop_ids > kMaxStopIds)
    return refuse("stop_token_ids", "stop_token_ids: {} ids, with the model's own, are more than the {} that can be watched",
                  n_stop_ids, kMaxStopIds);
  if (request.priority != 0 && !limits.has_priorities) {
    return refuse("priority", "priority is {}, and the server was not started with --scheduling-policy priority",
                  request.priority);
  }
  if (request.speculation) BATON_TRY_VOID(check_speculation(*request.speculation));
  if (request.speculation && request.speculation->n_tokens > 0 && request.speculation->method == DraftMethod::mtp &&
      !limits.has_mtp)
    return refuse(
        "speculative_config",
        "method 'mtp' is not supported: this server was started without --speculative-config {{\"method\": \"mtp\"}}");
  if (request.deadline && request.deadline->count() < 1)
    return refuse("deadline_ms", "deadline_ms must be at least 1, got {}", request.deadline->count());
  if (request.tenant.id < 0 || request.tenant.id >= kMaxTenants || request.tenant.weight < 1 ||
      request.tenant.weight > kMaxTenantWeight) {
    return refuse("tenant", "tenant {} with the weight {}: numbers are from 0 to {}, weights from 1 to {}", request.tenant.id,
                  request.tenant.weight, kMaxTenants - 1, kMaxTenantWeight);
  }
  if (request.scope.salt_from < 0)
    return refuse("cache_salt", "the position a cache salt applies from must be 0 or more, got {}", request.scope.salt_from);
  return {};
}

Result<void> check_prefix(std::span<const TokenId> tokens, const RequestLimits& limits) {
  if (tokens.empty()) return refuse("prefix", "a prefix needs at least one token");
  if (static_cast<std::int64_t>(tokens.size()) >= limits.max_model_len)
    return refuse("prefix", "it has {} tokens, which leaves no room in the maximum context length of {} tokens", tokens.size(),
                  limits.max_model_len);
  for (const TokenId token : tokens)
    if (token < 0 || token >= limits.n_vocab)
      return refuse("prefix", "token id {} is outside the vocabulary of {} tokens", token, limits.n_vocab);
  return {};
}

std::int32_t max_len_of(const Request& request, const RequestLimits& limits) {
  const auto& max_tokens = request.sampling.max_tokens;
  return max_tokens ? static_cast<std::int32_t>(request.prompt.size()) + *max_tokens : limits.max_model_len;
}

std::vector<std::unique_ptr<Sequence>> make_sequences(const Request& request, const SequenceOrigin& origin,
                                                      const RequestLimits& limits, std::uint64_t engine_seed) {
  const auto request_number = static_cast<std::uint64_t>(origin.request.value);
  const std::uint64_t seed = request.sampling.seed.value_or(split_mix(engine_seed, request_number));
  SamplingParams sampling = request.sampling;
  if (sampling.temperature < kGreedyTemperature) sampling.temperature = 0;
  sampling.allowed_ids = ascending(sampling.allowed_ids);
  const SharedList<TokenId> stop_ids = stop_ids_of(sampling, limits.eos_token_ids);
  const auto constraint =
      request.constraint.matcher != nullptr ? std::make_shared<const Constraint>(request.constraint) : nullptr;
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (std::int32_t i = 0; i < request.n_sequences; ++i) {
    SequenceTask task;
    task.id = SequenceId{origin.first.value + i};
    task.request = origin.request;
    task.index = i;
    task.n_siblings = request.n_sequences;
    task.sampling = sampling;
    task.sampling.seed = seed + static_cast<std::uint64_t>(i);
    if (i > 0) task.sampling.n_prompt_logprobs = -1;  // the prompt is scored by the first sequence only
    task.stop_ids = stop_ids;
    task.prompt_len = static_cast<std::int32_t>(request.prompt.size());
    task.max_len = max_len_of(request, limits);
    task.priority = request.priority;
    task.tenant = request.tenant;
    task.scope = request.scope;
    task.constraint = constraint;
    task.may_drop_samples = constraint != nullptr && !limits.has_states;
    const SpeculationOptions& speculation = request.speculation.value_or(limits.speculation);
    if (speculation.n_tokens > 0 && task.max_len > task.prompt_len) task.speculation = speculation;
    task.submitted = origin.arrived;
    if (request.deadline) task.deadline = origin.arrived + *request.deadline;
    sequences.push_back(std::make_unique<Sequence>(std::move(task), request.prompt));
  }
  return sequences;
}

}  // namespace baton
