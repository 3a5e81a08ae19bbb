/// What a client asks of the engine, in tokens, and what comes back.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "engine/speculation.h"
#include "kernels/batch.h"

namespace baton {

/// What must be equal, besides the tokens, for two sequences to share cached blocks.
struct CacheScope {
  std::string adapter;         ///< empty: the base model
  std::string salt;            ///< empty: shared by all
  std::int32_t salt_from = 0;  ///< position from which the salt applies; what lies before is shared by all
  bool operator==(const CacheScope&) const = default;
};

/// Lists travel to the device with every step.
inline constexpr std::size_t kMaxLogitBiases = 4096;
inline constexpr std::size_t kMaxAllowedIds = 16384;
inline constexpr std::size_t kMaxBadWords = 1024;
inline constexpr std::size_t kMaxBadWordTokens = 64;
/// Bounds of presence_penalty and frequency_penalty, and of a bias (besides -infinity), either way.
inline constexpr float kMaxPenalty = 2;
inline constexpr float kMaxBias = 100;

/// How tokens are chosen and when a sequence ends. Limits are checked by Engine::submit.
struct SamplingParams {
  float temperature = 1;                             ///< 0: greedy
  std::int32_t top_k = 0;                            ///< 0: off
  float top_p = 1;                                   ///< 1: off
  float min_p = 0;                                   ///< 0: off; least share of the most likely token's probability
  float repetition_penalty = 1;                      ///< 1: off; of tokens of the prompt and of the answer
  float presence_penalty = 0;                        ///< 0: off; of tokens of the answer
  float frequency_penalty = 0;                       ///< 0: off; for each time that a token stands in the answer
  std::vector<TokenBias> logit_bias = {};            ///< ids each once
  std::vector<std::vector<TokenId>> bad_words = {};  ///< runs of tokens that the answer does not contain
  std::vector<TokenId> allowed_ids = {};             ///< empty: all
  std::optional<std::uint64_t> seed;                 ///< absent: drawn by the engine; sequence i of a request uses seed + i
  std::int32_t n_top_logprobs = -1;                  ///< -1: none; 0: the chosen token's; up to kMaxTopLogprobs
  /// Of each token of the prompt but the first: -1: none; 0: its log-probability; n: and the n most likely. All of the
  /// prompt is then computed, whatever is cached.
  std::int32_t n_prompt_logprobs = -1;
  std::optional<std::int32_t> max_tokens;  ///< absent: what the context has left; 0: none, only with n_prompt_logprobs
  std::int32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<TokenId> stop_ids;  ///< besides the model's end-of-sequence ids
};

/// A model's own sampling (generation_config.json), for what a client leaves out; absent: SamplingParams' default.
/// Whoever makes a Request applies it.
struct SamplingDefaults {
  std::optional<float> temperature = {};
  std::optional<float> top_p = {};
  std::optional<std::int32_t> top_k = {};
  std::optional<float> repetition_penalty = {};
};

struct Request {
  using Clock = std::chrono::steady_clock;

  std::vector<TokenId> prompt;
  SamplingParams sampling;
  CacheScope scope;
  std::int32_t n_sequences = 1;                            ///< continuations of one prompt, whose blocks they share
  std::int32_t priority = 0;                               ///< lower is earlier
  std::optional<Clock::time_point> arrived = {};           ///< times count from here; absent: from submit
  std::optional<std::chrono::milliseconds> deadline = {};  ///< from arrival: it ends then, with what it has
  std::optional<SpeculationOptions> speculation = {};      ///< absent: the engine's
};

enum class FinishReason {
  stop,      ///< a stop id, an end-of-sequence id, or the server's stop string; or no token is allowed to follow
  length,    ///< max_tokens or the context's end
  deadline,  ///< the request's own
  abort,     ///< cancelled
  error,     ///< a NaN in the logits, or an engine that stopped
};

constexpr std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::deadline: return "deadline";
    case FinishReason::abort: return "abort";
    case FinishReason::error: return "error";
  }
  return "unknown";
}

struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
};

/// One generated token.
struct TokenOutput {
  TokenId token = 0;
  std::optional<float> logprob;            ///< natural log
  std::vector<TokenLogprob> top_logprobs;  ///< most likely first
  std::int32_t rank = 0;                   ///< of a token of the prompt: 1 + how many were more likely
};

/// What sharing did for one sequence (`baton_stats`, docs/api.md).
struct SequenceStats {
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = 0;  ///< prompt tokens found in the cache
  std::int32_t completion_tokens = 0;
  std::int64_t relayed_tokens = 0;      ///< sum over steps of context tokens read together with other sequences
  std::int64_t kv_bytes_requested = 0;  ///< this sequence's share of what the plans read, all layers
  std::int64_t kv_bytes_saved = 0;      ///< its share of what plain leaves would have read more
  std::int32_t largest_group = 1;       ///< sequences in the largest shared read it took part in
  double queue_ms = 0;                  ///< from submit to the first step
  double prefill_ms = 0;                ///< from the first step to the first token
  std::int32_t n_preemptions = 0;
  std::int32_t draft_tokens = 0;     ///< drafts that steps verified
  std::int32_t accepted_tokens = 0;  ///< of these, those that were accepted
};

/// News of one sequence. The last event of a sequence has `finished`; after it no more come for (request, index).
struct Event {
  RequestId request;
  std::int32_t index = 0;           ///< which of the request's sequences
  std::vector<TokenOutput> tokens;  ///< new ones, in order, without the stop token
  std::optional<FinishReason> finished;
  /// The token that ended the sequence, with its log-probabilities: a stop id or an end-of-sequence id was sampled. It
  /// was generated like the others (completion_tokens counts it), but it is no part of the text.
  std::optional<TokenOutput> stop_token;
  SequenceStats stats;  ///< as of this event
  /// The next tokens of the prompt, from its second one on, with log-probabilities; all have come before the first of
  /// `tokens`. Of sequence 0 only.
  std::vector<TokenOutput> prompt_scores = {};
};

}  // namespace baton
