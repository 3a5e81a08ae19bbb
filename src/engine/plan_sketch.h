/// A plan in the making: what the scheduler has given out of a step, and what is left.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/scheduler.h"

namespace baton {

/// Nothing in a sequence but its blocks changes before the rows of all are settled, so that a preemption
/// takes a sequence's rows back by dropping them.
struct PlanSketch {
  StepPlan plan;
  std::vector<Sequence*> members;  ///< of plan.sequences, one by one
  std::int32_t budget = 0;
  std::int32_t max_scores = 0;                ///< rows of prompts that may still be scored, or drafts be verified
  std::int64_t max_list_entries = 0;          ///< of drafts
  std::vector<std::int32_t> n_claimed = {};   ///< for admissions: blocks of each layer group that running sequences claim
  std::optional<bool> has_spare_blocks = {};  ///< for drafts: blocks for all that running sequences have a claim on

  /// A prompt that would take all leaves a quarter to those behind it: a short one need not wait for the end of a long
  /// one.
  std::int32_t n_kept_behind(std::int32_t n_left) const { return n_left > 1 && n_left > budget ? budget / 4 : 0; }
  /// Rows of the sequence from `first` on, of the `n_left` it has, that the step has room for.
  std::int32_t n_rows_of(const Sequence& sequence, std::int32_t first, std::int32_t n_left) const {
    const std::int32_t n_rows = std::min(n_left, budget);
    // Scored rows stand together, before the row of the last token of the prompt.
    const std::int32_t n_too_many = sequence.n_scores(first, n_rows) - max_scores;
    return n_too_many <= 0 ? n_rows : std::max(first, sequence.sampling->n_scored) + max_scores - first;
  }
  void reserve(std::size_t n_sequences) {
    plan.sequences.reserve(n_sequences);
    members.reserve(n_sequences);
  }
  void add(Sequence& sequence, std::int32_t n_rows) {
    members.push_back(&sequence);
    const std::int32_t end = sequence.schedule->n_planned + n_rows;
    const bool samples = !sequence.is_prefill_only() && end == sequence.n_tokens_bound();
    plan.sequences.push_back(
        {sequence.task->id, sequence.schedule->slot, sequence.schedule->n_planned, n_rows, samples ? 1 : 0});
    plan.n_rows += n_rows;
    budget -= n_rows;
    max_scores -= sequence.n_scores(sequence.schedule->n_planned, n_rows);
  }
  /// More rows of a sequence that has some in the step. Returns them, to be applied.
  PlannedSequence grow(PlannedSequence& planned, const Sequence& sequence, std::int32_t n_rows) {
    const bool samples = !sequence.is_prefill_only() && sequence.schedule->n_planned + n_rows == sequence.n_tokens_bound();
    planned.n_rows += n_rows;
    planned.max_tokens = samples ? 1 : 0;
    plan.n_rows += n_rows;
    budget -= n_rows;
    max_scores -= sequence.n_scores(sequence.schedule->n_planned, n_rows);
    return {planned.id, planned.slot, sequence.schedule->n_planned, n_rows, planned.max_tokens};
  }
  /// Rows behind the one of a sequence that decodes.
  void add_drafts(PlannedSequence& planned, const Sequence& sequence, std::vector<TokenId> drafts) {
    const auto n_drafts = static_cast<std::int32_t>(drafts.size());
    planned.drafts = std::move(drafts);
    planned.n_rows += n_drafts;
    planned.max_tokens += n_drafts;
    plan.n_rows += n_drafts;
    plan.n_drafts += n_drafts;
    budget -= n_drafts;
    max_scores -= n_drafts;
    max_list_entries -= static_cast<std::int64_t>(n_drafts) * sequence.n_list_entries();
  }
  /// Takes the sequence's rows out of the step, if it has some, and gives back what they took. Before drafts are
  /// added.
  void drop(const Sequence& sequence) {
    const auto at = std::ranges::find(plan.sequences, sequence.task->id, &PlannedSequence::id);
    if (at == plan.sequences.end()) return;
    plan.n_rows -= at->n_rows;
    if (at - plan.sequences.begin() < plan.n_decodes) --plan.n_decodes;
    budget += at->n_rows;
    max_scores += sequence.n_scores(at->first_position, at->n_rows);
    members.erase(members.begin() + (at - plan.sequences.begin()));
    plan.sequences.erase(at);
  }
};

}  // namespace baton
