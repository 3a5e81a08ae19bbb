/// One generated continuation and its state, from admission to its last event.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/ids.h"
#include "engine/request.h"

namespace baton {

enum class SequenceState { waiting, running, finished };

/// Invariants: n_committed <= n_planned; blocks covers n_planned positions while running; the first n_cached_blocks of them belong to the
/// prefix tree (shared), the rest are private. Thread: engine only.
struct Sequence {
  using Clock = std::chrono::steady_clock;

  SequenceId id;
  RequestId request;
  std::int32_t index = 0;             ///< which of the request's sequences
  SamplingParams sampling;
  CacheScope scope;
  SequenceState state = SequenceState::waiting;
  SlotId slot;                        ///< while running

  std::vector<TokenId> tokens;        ///< prompt, then committed tokens: what the host knows
  std::int32_t prompt_len = 0;
  std::int32_t max_len = 0;           ///< positions it may come to: prompt_len + max_tokens, at most the model's limit
  std::int32_t n_planned = 0;         ///< positions whose keys are stored once every enqueued step has run (an upper bound)
  std::int32_t n_committed = 0;       ///< positions whose keys are stored as of the last commit
  std::int32_t n_samples_in_flight = 0;  ///< tokens sampled by enqueued steps and not yet committed

  std::vector<BlockId> blocks;        ///< block table
  std::int32_t n_cached_blocks = 0;

  std::optional<FinishReason> finish_asked;  ///< by the server (stop string, cancel): taken at the next drain
  SequenceStats stats;
  Clock::time_point submitted;
  Clock::time_point first_step;
  Clock::time_point last_token;
};

}  // namespace baton
