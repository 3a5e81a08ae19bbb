/// Drafts that the model makes: for which sequences, how many, and what becomes of them.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/check.h"
#include "engine/schedule/answer_grammar.h"
#include "engine/schedule/scheduler.h"

namespace baton {
namespace {

/// Whether the model would draft for a sequence once it has `n_tokens` tokens.
bool is_drafted_for(const Sequence& sequence, std::int32_t n_tokens) {
  const std::optional<Speculation>& speculation = sequence.schedule->speculation;
  return speculation && speculation->drafts_by_model() && speculation->is_active(n_tokens) &&
         (sequence.grammar == nullptr || !sequence.grammar->is_late());
}

}  // namespace

std::optional<std::int32_t> Scheduler::plan_draft_passes(const StepPlan& plan) {
  if (!options_.has_mtp) return std::nullopt;
  std::int32_t n_drafting = 0;
  std::int32_t n_most = 0;
  double acceptance = 0;
  for (const PlannedSequence& planned : plan.sequences) {
    const Sequence* const sequence = find(planned);
    if (planned.max_tokens == 0 || sequence == nullptr || !is_drafted_for(*sequence, sequence->n_tokens_bound())) continue;
    ++n_drafting;
    n_most = std::max(n_most, sequence->schedule->speculation->n_most());
    acceptance += sequence->schedule->speculation->acceptance();
  }
  if (n_drafting > 0 && options_.uses_step_times && !options_.drafts_always && plan.n_prefill() == 0)
    n_most = draft_pace_.n_drafts(n_drafting, n_most, acceptance / n_drafting, row_cost_);
  if (n_most == 0 && plan.n_prefill() == 0) return std::nullopt;
  return n_most;
}

std::vector<DraftRun> Scheduler::draft_runs(const StepPlan& plan, std::span<const StepOutcome> outcomes, std::int32_t n_most) {
  std::vector<DraftRun> runs;
  if (options_.max_drafts == 0 || n_most == 0) return runs;
  std::optional<bool> has_spare;
  auto planned = plan.sequences.begin();
  for (const StepOutcome& outcome : outcomes) {
    planned = std::ranges::find(planned, plan.sequences.end(), outcome.id, &PlannedSequence::id);
    check(planned != plan.sequences.end(), "Scheduler: a result of a sequence that is not in the step, or not in its order");
    Sequence* const sequence = find(*planned);
    if (sequence == nullptr || sequence->schedule->state != SequenceState::running || outcome.finished ||
        outcome.tokens.empty())
      continue;
    const std::int32_t n_tokens = sequence->n_tokens() + static_cast<std::int32_t>(outcome.tokens.size());
    // The token after the next one is the first that a draft can be.
    const std::int32_t n_left = sequence->task->max_len - n_tokens - 1;
    if (n_left <= 0 || !is_drafted_for(*sequence, n_tokens)) continue;
    SequenceSchedule& schedule = sequence->schedule.write();
    std::int32_t n_drafts = std::min({n_most, n_left, schedule.speculation->n_most()});
    // Draft i is made at position n_tokens - 2 + i, where the layer stores keys and values.
    const std::int32_t n_positions = n_tokens - 2 + n_drafts;
    if (!cache_.covers(schedule.table, n_positions)) {
      if (!has_spare) has_spare = has_spare_blocks();
      if (!*has_spare || !cache_.extend(schedule.table, n_positions)) n_drafts = 1;
    }
    runs.push_back({sequence, planned->slot, n_tokens, n_drafts});
  }
  return runs;
}

void Scheduler::offer(const StepPlan& plan, std::span<const DraftRun> runs, std::vector<std::vector<TokenId>> drafts,
                      double seconds) {
  if (runs.empty()) return;
  std::int32_t n_passes = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    n_passes = std::max(n_passes, runs[i].n_drafts);
    Sequence* const sequence = holder_of(runs[i].slot) == runs[i].sequence ? find(runs[i].sequence->task->id) : nullptr;
    if (sequence != nullptr) sequence->schedule.write().speculation->offer(runs[i].n_tokens, std::move(drafts[i]));
  }
  if (plan.n_prefill() == 0) draft_pace_.observe(static_cast<std::int32_t>(runs.size()), n_passes, seconds);
}

}  // namespace baton
