/// One generated continuation and its state, from admission to its last event.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"
#include "engine/kv_cache.h"
#include "engine/request.h"

namespace baton {

enum class SequenceState { waiting, running, finished };

/// Invariants: n_committed <= n_planned; the table covers n_planned positions while running; in a state other than running the
/// sequence has neither blocks nor a slot. Thread: engine only.
struct Sequence {
  using Clock = std::chrono::steady_clock;

  SequenceId id;                  ///< ascending in the order of arrival
  RequestId request;              ///< -1: the engine's own, which fills a prefix
  std::int32_t index = 0;         ///< which of the request's sequences
  SamplingParams sampling;        ///< with its own seed
  std::vector<TokenId> stop_ids;  ///< all that end it: the model's (unless ignored) and the request's
  SequenceState state = SequenceState::waiting;
  SlotId slot;  ///< while running

  std::vector<TokenId> tokens;  ///< prompt, then committed tokens: what the host knows. A stop id is not among them
  std::int32_t prompt_len = 0;
  std::int32_t max_len = 0;              ///< tokens it may come to; prompt_len for one that only fills the cache
  std::int32_t n_planned = 0;            ///< positions whose keys are stored once every enqueued step has run (an upper bound)
  std::int32_t n_committed = 0;          ///< positions whose keys are stored as of the last commit
  std::int32_t n_samples_in_flight = 0;  ///< tokens sampled by enqueued steps and not yet committed
  std::int32_t n_before_slot = 0;        ///< tokens it had generated when it got its slot: not 0 after a preemption
  std::int32_t n_admissions = 0;
  std::int32_t n_preemptions = 0;
  std::int32_t n_lost = 0;       ///< positions whose keys it had when it was preempted
  std::int32_t n_overtaken = 0;  ///< times that a later one was admitted before it
  std::int32_t priority = 0;     ///< lower is earlier

  BlockTable table;

  std::optional<FinishReason> finished;
  std::optional<TokenId> stop_id;  ///< the id that ended it, if one did
  SequenceStats stats;
  Clock::time_point submitted;               ///< the request's arrival
  std::optional<Clock::time_point> deadline;  ///< it ends then, with what it has
  Clock::time_point first_step;
  Clock::time_point last_token;

  bool is_fill() const { return max_len == prompt_len; }
  std::int32_t n_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
  std::int32_t n_generated() const { return n_tokens() - prompt_len; }
  /// Tokens at most, once every enqueued step has run.
  std::int32_t n_tokens_bound() const { return n_tokens() + n_samples_in_flight; }
  /// Positions whose tokens are known and whose keys some enqueued step stores.
  std::int32_t n_filled() const { return std::min(n_tokens(), n_planned); }
  /// Rows that a step could compute now: none while nothing but a commit can follow.
  std::int32_t n_rows_left() const {
    if (is_fill()) return prompt_len - n_planned;
    return n_tokens_bound() >= max_len ? 0 : n_tokens_bound() - n_planned;
  }
  /// Positions it can ever need: the last token it generates is not stored.
  std::int32_t max_positions() const { return is_fill() ? prompt_len : max_len - 1; }
};

}  // namespace baton
