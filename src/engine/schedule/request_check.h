/// The limits of a request: all of them are checked here, before anything is queued.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/request/request.h"
#include "engine/schedule/sequence.h"

namespace baton {

struct RequestLimits {
  std::int32_t max_model_len = 0;
  std::int32_t n_vocab = 0;
  std::span<const TokenId> eos_token_ids;
  SpeculationOptions speculation = {};              ///< of requests that do not set their own
  std::int32_t max_list_entries = kMaxListEntries;  ///< see StepBounds
  bool has_priorities = false;                      ///< see EngineOptions::has_priorities
  bool has_mtp = false;                             ///< see EngineInfo
  bool has_states = false;                          ///< a row of the model is computed once: no dropped samples
};

/// The most sequences that one request may ask for.
inline constexpr std::int32_t kMaxSequencesPerRequest = 128;

/// What does not fit into `max_len` tokens, in the words of the OpenAI API: a prompt of `prompt_len` tokens ("at least 7"), or
/// the `max_tokens` after it.
std::string context_excess_message(std::int32_t max_len, std::int64_t prompt_len, std::optional<std::int32_t> max_tokens = {},
                                   bool is_least = false);

/// Error: invalid_request, with the client's name of the wrong field in `param`.
Result<void> check_request(const Request& request, const RequestLimits& limits);

/// The same check for a prefix to be pinned.
Result<void> check_prefix(std::span<const TokenId> tokens, const RequestLimits& limits);

/// The most tokens that each sequence of a checked request may have, with its prompt.
std::int32_t max_len_of(const Request& request, const RequestLimits& limits);

/// The ids and the arrival time of a request's sequences.
struct SequenceOrigin {
  RequestId request;
  SequenceId first;                     ///< sequence i has the id first + i
  Sequence::Clock::time_point arrived;  ///< deadlines count from here
};

/// Makes the sequences of a checked request: max_tokens is filled in, and sequence i uses seed + i. The seed of a
/// request without one is a function of `engine_seed` and the request's id.
std::vector<std::unique_ptr<Sequence>> make_sequences(const Request& request, const SequenceOrigin& origin,
                                                      const RequestLimits& limits, std::uint64_t engine_seed);

}  // namespace baton
