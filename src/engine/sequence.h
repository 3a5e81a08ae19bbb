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
#include "engine/speculation.h"
#include "engine/token_counts.h"

namespace baton {

enum class SequenceState { waiting, running, finished };

/// Entries of the lists (token counts, biases, bans, allowed ids) that sampling one token of a sequence can need.
inline std::int32_t max_list_entries(const SamplingParams& sampling, std::int32_t prompt_len, std::int32_t max_len) {
  const bool penalises = sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
  const std::int32_t n_counts = sampling.repetition_penalty != 1 ? max_len : penalises ? max_len - prompt_len : 0;
  return n_counts +
         static_cast<std::int32_t>(sampling.logit_bias.size() + sampling.bad_words.size() + sampling.allowed_ids.size());
}

/// Invariants: n_committed <= n_planned; the table covers n_planned positions while running; in a state other than running the
/// sequence has neither blocks nor a slot. Thread: engine only.
struct Sequence {
  using Clock = std::chrono::steady_clock;

  SequenceId id;                           ///< ascending in the order of arrival
  RequestId request;                       ///< -1: none, it computes a registered prefix
  std::int32_t index = 0;                  ///< which of the request's sequences
  SamplingParams sampling;                 ///< with its own seed
  std::vector<TokenId> stop_ids;           ///< all that end it: the model's (unless ignored) and the request's
  TokenCounts counts;                      ///< of what its penalties are about, see count_tokens
  std::optional<Speculation> speculation;  ///< absent: it does not draft
  SequenceState state = SequenceState::waiting;
  SlotId slot;  ///< while running

  std::vector<TokenId> tokens;  ///< prompt, then committed tokens: what the host knows. The stop token is not among them
  std::int32_t prompt_len = 0;
  std::int32_t max_len = 0;      ///< tokens it may come to; prompt_len for one that generates nothing
  std::int32_t n_planned = 0;    ///< positions whose keys are stored once every enqueued step has run (an upper bound)
  std::int32_t n_committed = 0;  ///< positions whose keys are stored as of the last commit
  std::int32_t n_scored = 0;     ///< positions whose next token of the prompt is scored once every enqueued step has run
  std::int32_t n_samples_in_flight = 0;  ///< tokens sampled by enqueued steps and not yet committed
  std::int32_t n_drafts_in_flight = 0;   ///< of these, the drafts that an enqueued step verifies: no other has rows of it
  std::int32_t n_before_slot =
      0;                        ///< tokens generated when its slot began: not 0 after a preemption or an accepted draft
  bool is_slot_behind = false;  ///< its slot has not seen accepted drafts: it begins anew with the next row
  std::int32_t n_admissions = 0;
  std::int32_t n_preemptions = 0;
  std::int32_t n_lost = 0;       ///< positions whose keys it had when it was preempted
  std::int32_t n_overtaken = 0;  ///< times that a later one was admitted before it
  std::int32_t priority = 0;     ///< lower is earlier

  BlockTable table;

  std::optional<FinishReason> finished;
  std::optional<TokenOutput> stop_token;  ///< the token that ended it, see Event::stop_token
  SequenceStats stats;
  Clock::time_point submitted;                ///< the request's arrival
  std::optional<Clock::time_point> deadline;  ///< it ends then, with what it has
  Clock::time_point first_step;
  Clock::time_point last_token;

  /// Whether it generates nothing: it computes a registered prefix, or scores its prompt.
  bool is_prefill_only() const { return max_len == prompt_len; }
  /// Whether it computes a registered prefix: it belongs to no request, and no event tells of it.
  bool is_prefix_prefill() const { return is_prefill_only() && !request.is_valid(); }
  /// Whether the logits of the row at `position` score the prompt's next token, which no step enqueued before does.
  bool scores_row(std::int32_t position) const {
    return sampling.n_prompt_logprobs >= 0 && position >= n_scored && position + 1 < prompt_len;
  }
  /// Rows among the `n_rows` from `first` on whose logits score a token.
  std::int32_t n_scores(std::int32_t first, std::int32_t n_rows) const {
    if (sampling.n_prompt_logprobs < 0) return 0;
    return std::max(0, std::min(first + n_rows, prompt_len - 1) - std::max(first, n_scored));
  }
  /// Tokens that blocks may be found for: a last one must be computed, for its logits, and all whose logits score the next.
  std::int32_t n_matchable() const {
    if (is_prefix_prefill()) return prompt_len;
    return n_scores(0, prompt_len) > 0 ? std::min(n_scored, n_tokens() - 1) : n_tokens() - 1;
  }
  std::int32_t n_list_entries() const { return max_list_entries(sampling, prompt_len, max_len); }
  std::int32_t n_tokens() const { return static_cast<std::int32_t>(tokens.size()); }
  std::int32_t n_generated() const { return n_tokens() - prompt_len; }
  /// Tokens at most, once every enqueued step has run.
  std::int32_t n_tokens_bound() const { return n_tokens() + n_samples_in_flight; }
  /// Positions whose tokens are known and whose keys some enqueued step stores.
  std::int32_t n_filled() const { return std::min(n_tokens(), n_planned); }
  /// Rows that a step could compute now: none while nothing but a commit can follow.
  std::int32_t n_rows_left() const {
    if (is_prefill_only()) return prompt_len - n_planned;
    if (n_drafts_in_flight > 0) return 0;
    return n_tokens_bound() >= max_len ? 0 : n_tokens_bound() - n_planned;
  }
  /// Positions it can ever need: the last token it generates is not stored.
  std::int32_t max_positions() const { return is_prefill_only() ? prompt_len : max_len - 1; }
};

}  // namespace baton
