/// A client's request in tokens, and the events that answer it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "core/shared_list.h"
#include "core/short_vector.h"
#include "engine/request/constraint.h"
#include "engine/request/speculation.h"
#include "kernels/batch.h"

namespace baton {

/// Two sequences share cached blocks only if their scopes are equal, besides the tokens.
struct CacheScope {
  std::string adapter;         ///< empty: the base model
  std::string salt;            ///< empty: shared by all
  std::int32_t salt_from = 0;  ///< first position to which the salt applies; blocks before it are shared by all
  bool operator==(const CacheScope&) const = default;
};

/// Lists travel to the device with every step.
inline constexpr std::size_t kMaxLogitBiases = 4096;
inline constexpr std::size_t kMaxAllowedIds = 16384;
inline constexpr std::size_t kMaxBadWords = 1024;
inline constexpr std::size_t kMaxBadWordTokens = 64;
/// Largest absolute value of presence_penalty and frequency_penalty, and of a bias other than -infinity.
inline constexpr float kMaxPenalty = 2;
inline constexpr float kMaxBias = 100;

/// How tokens are chosen and when a sequence ends. Limits are checked by Engine::submit. Copies share the lists.
struct SamplingParams {
  float temperature = 1;                            ///< 0: greedy
  std::int32_t top_k = 0;                           ///< 0: off
  float top_p = 1;                                  ///< 1: off
  float min_p = 0;                                  ///< 0: off; least share of the highest token probability
  float repetition_penalty = 1;                     ///< 1: off; for tokens of the prompt and of the answer
  float presence_penalty = 0;                       ///< 0: off; for tokens of the answer
  float frequency_penalty = 0;                      ///< 0: off; for each occurrence in the answer
  SharedList<TokenBias> logit_bias = {};            ///< each id once
  SharedList<std::vector<TokenId>> bad_words = {};  ///< runs of tokens that the answer must not contain
  SharedList<TokenId> allowed_ids = {};             ///< empty: all
  std::optional<std::uint64_t> seed;                ///< absent: chosen by the engine; sequence i uses seed + i
  std::int32_t n_top_logprobs = -1;                 ///< -1: none; 0: the chosen token's; up to kMaxTopLogprobs
  /// For each token of the prompt but the first: -1: nothing; 0: its log-probability; n: also the n most likely
  /// tokens. The whole prompt is then computed, even if it is cached.
  std::int32_t n_prompt_logprobs = -1;
  std::optional<std::int32_t> max_tokens;  ///< absent: what the context allows; 0: none, only with n_prompt_logprobs
  std::int32_t min_tokens = 0;
  bool ignore_eos = false;
  SharedList<TokenId> stop_ids;  ///< besides the model's end-of-sequence ids
};

/// A model's default sampling parameters (generation_config.json), for parameters that a client leaves out; absent: the
/// defaults of SamplingParams. The code that makes a Request applies them.
struct SamplingDefaults {
  std::optional<float> temperature = {};
  std::optional<float> top_p = {};
  std::optional<std::int32_t> top_k = {};
  std::optional<float> min_p = {};
  std::optional<float> repetition_penalty = {};
  std::optional<std::int32_t> max_tokens = {};  ///< also the limit of requests that ask for more
};

/// The most tenants, and the largest weight of one.
inline constexpr std::int32_t kMaxTenants = 65536;
inline constexpr std::int32_t kMaxTenantWeight = 1000;

/// Whose request it is. Tenants share rows, slots and blocks in proportion to their weights.
struct Tenant {
  std::int32_t id = 0;  ///< below kMaxTenants
  std::int32_t weight = 1;
};

struct Request {
  using Clock = std::chrono::steady_clock;

  SharedList<TokenId> prompt;
  SamplingParams sampling;
  CacheScope scope;
  std::int32_t n_sequences = 1;  ///< continuations of the prompt; they share its blocks
  Tenant tenant = {};
  std::int32_t priority = 0;                      ///< lower runs earlier; among requests of one tenant, see EngineOptions
  std::optional<Clock::time_point> arrived = {};  ///< times count from here; absent: from submit
  std::optional<std::chrono::milliseconds> deadline = {};  ///< from arrival; sequences end with the tokens they have
  std::optional<SpeculationOptions> speculation = {};      ///< absent: the engine's
  Constraint constraint = {};
};

enum class FinishReason {
  stop,      ///< a stop id, end-of-sequence id or the server's stop string; or no token is allowed
  length,    ///< max_tokens or the context's end
  deadline,  ///< the request's own
  abort,     ///< cancelled
  error,     ///< a NaN in the logits, a grammar that cannot continue (Event::error), or an engine that stopped
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
  std::int32_t rank = 0;                   ///< of a prompt token: 1 + the number of more likely tokens
};

/// The effects of sharing on one sequence (`baton_stats`, docs/api.md).
struct SequenceStats {
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = 0;  ///< prompt tokens found in the cache, and not computed again
  /// Prompt tokens whose keys were found and not the state of recurrent layers after them: they were computed again.
  std::int32_t replayed_tokens = 0;
  std::int32_t completion_tokens = 0;
  std::int64_t relayed_tokens = 0;      ///< sum over steps of context tokens read together with other sequences
  std::int64_t kv_bytes_requested = 0;  ///< this sequence's share of the bytes that plans read, all layers
  std::int64_t kv_bytes_saved = 0;      ///< its share of what leaves without sharing would have read more
  std::int32_t largest_group = 1;       ///< sequences in the largest shared read it took part in
  double queue_ms = 0;                  ///< from submit to the first step
  double prefill_ms = 0;                ///< from the first step to the first token
  std::int32_t n_preemptions = 0;
  std::int32_t draft_tokens = 0;     ///< drafts that steps verified
  std::int32_t accepted_tokens = 0;  ///< of these, the accepted ones
};

/// New results of one sequence. The last event of a sequence has `finished`; none follows it for (request, index).
struct Event {
  RequestId request;
  std::int32_t index = 0;           ///< the sequence's index in the request
  ShortVector<TokenOutput> tokens;  ///< new tokens, in order, without the stop token
  std::optional<FinishReason> finished;
  /// The token that ended the sequence, with its log-probabilities: a sampled stop id or end-of-sequence id. It counts
  /// as generated (in completion_tokens) but is not part of the text.
  std::optional<TokenOutput> stop_token;
  SequenceStats stats;  ///< as of this event
  /// Log-probabilities of the next tokens of the prompt, beginning with its second token. All of them come before the
  /// first of `tokens`. Only for sequence 0.
  std::vector<TokenOutput> prompt_scores = {};
  std::shared_ptr<const Error> error = {};  ///< of FinishReason::error, if the request's grammar is the reason
};

}  // namespace baton
