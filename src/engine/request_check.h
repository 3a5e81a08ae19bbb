/// What a request may ask: every limit is checked here, before anything is queued.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "engine/request.h"
#include "engine/sequence.h"

namespace baton {

struct RequestLimits {
  std::int32_t max_model_len = 0;
  std::int32_t n_vocab = 0;
  std::span<const TokenId> eos_token_ids;
  SpeculationOptions speculation = {};              ///< of requests that do not say
  std::int32_t max_list_entries = kMaxListEntries;  ///< see StepBounds
};

/// Sequences that one request may ask for.
inline constexpr std::int32_t kMaxSequencesPerRequest = 128;

/// Error invalid_request, with the field that is at fault in `param` (the client's name for it).
Result<void> check_request(const Request& request, const RequestLimits& limits);

/// The same for a prefix to be registered.
Result<void> check_prefix(std::string_view name, std::span<const TokenId> tokens, const RequestLimits& limits);

/// Where the sequences of a request come from.
struct SequenceOrigin {
  RequestId request;
  SequenceId first;                     ///< sequence i has the id first + i
  Sequence::Clock::time_point arrived;  ///< deadlines count from here
};

/// The sequences of a checked request: max_tokens filled in, sequence i with seed + i. A request without a seed gets
/// one that is a function of `engine_seed` and its id.
std::vector<std::unique_ptr<Sequence>> make_sequences(const Request& request, const SequenceOrigin& origin,
                                                      const RequestLimits& limits, std::uint64_t engine_seed);

}  // namespace baton
