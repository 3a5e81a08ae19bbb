/// A plan being built: the rows assigned so far and what is left of the step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/schedule/scheduler.h"

namespace baton {

/// Sequences change only their blocks until the rows of all are settled, so a preemption only has to drop the rows of
/// its sequence.
struct PlanSketch {
  StepPlan plan;
  std::vector<Sequence*> members;               ///< the sequences of plan.sequences, in the same order
  std::vector<SequenceId> preempted = {};       ///< by this plan
  std::vector<Sequence*> cached_prefixes = {};  ///< registered prefixes that need no rows
  std::vector<std::size_t> prefills = {};       ///< places, in the order of the running sequences, of the prefilling ones
  std::int32_t budget = 0;
  std::int32_t n_withheld = 0;  ///< rows that prompts may not take (Scheduler::pace)
  std::int32_t n_loads = 0;     ///< entries that may still be loaded from the host tier
  AdmissionPolicy::Limits limits = {};
  std::vector<bool> is_held_back = {};        ///< by slot; empty: every decode has its row (Scheduler::hold_back_decodes)
  std::int32_t max_scores = 0;                ///< prompt rows that may still be scored, or drafts that may be verified
  std::int64_t max_list_entries = 0;          ///< of drafts
  std::vector<std::int32_t> n_claimed = {};   ///< for admissions: blocks of each group that running sequences need
  std::optional<bool> has_spare_blocks = {};  ///< for drafts: whether running sequences have all the blocks they need

  bool holds_back(SlotId slot) const { return !is_held_back.empty() && is_held_back[static_cast<std::size_t>(slot.value)]; }
  /// Rows that a tenant may still take.
  std::int32_t n_open_to(std::int32_t tenant) const { return limits.n_open_to(tenant, budget); }
  /// Rows that the sequence, with `n_left` rows to compute, leaves to others: those outside its tenant's share. A prompt
  /// that would take all the others leaves a quarter of them if sequences follow it, so that a short prompt need not
  /// wait for the end of a long one.
  std::int32_t n_kept_from(const Sequence& sequence, std::int32_t n_left, bool has_others) const {
    const std::int32_t n_open = n_open_to(sequence.task->tenant.id);
    return budget - n_open + (has_others && n_left > 1 && n_left > n_open ? n_open / 4 : 0);
  }
  /// The rows that the step has room for, of the `n_left` rows that the sequence has from `first` on.
  std::int32_t n_rows_of(const Sequence& sequence, std::int32_t first, std::int32_t n_left) const {
    const std::int32_t n_rows = std::min({n_left, budget, sequence.n_rows_to_stop(first)});
    // Scored rows are contiguous and come before the row of the prompt's last token.
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
    limits.take(sequence.task->tenant.id, n_rows);
    max_scores -= sequence.n_scores(sequence.schedule->n_planned, n_rows);
  }
  /// Adds rows to a sequence that already has some in the step. Returns the added ones, to be applied.
  PlannedSequence grow(PlannedSequence& planned, const Sequence& sequence, std::int32_t n_rows) {
    const bool samples = !sequence.is_prefill_only() && sequence.schedule->n_planned + n_rows == sequence.n_tokens_bound();
    planned.n_rows += n_rows;
    planned.max_tokens = samples ? 1 : 0;
    plan.n_rows += n_rows;
    budget -= n_rows;
    max_scores -= sequence.n_scores(sequence.schedule->n_planned, n_rows);
    return {planned.id, planned.slot, sequence.schedule->n_planned, n_rows, planned.max_tokens};
  }
  /// Adds drafts after the row of a sequence that decodes.
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
  /// Removes the sequence's rows, if any, from the step and returns what they took. Must be called before drafts are
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
