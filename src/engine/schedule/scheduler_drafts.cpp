/// Drafts in the scheduler: how many each sequence gets in a step, and what follows from their results.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/check.h"
#include "engine/schedule/answer_grammar.h"
#include "engine/schedule/plan_sketch.h"
#include "engine/schedule/scheduler.h"

namespace baton {
namespace {

/// Drafts of forced text for which a sequence sits out a step: with them it has no rows in the step that verifies them and
/// none in the one before and after.
constexpr std::int32_t kLeastForced = 3;
/// The least probability of the last of these.
constexpr double kLeastProbability = 0.3;

/// Drafts would only be more masks to wait for.
bool waits_for_mask(const Sequence& sequence) { return sequence.grammar != nullptr && sequence.grammar->is_late(); }

bool speculates(const Sequence& sequence, std::int32_t n_tokens) {
  return !waits_for_mask(sequence) && sequence.schedule->speculation && sequence.schedule->speculation->is_active(n_tokens);
}

bool drafts_forced_text(const Sequence& sequence, std::int32_t n_tokens) {
  return sequence.grammar != nullptr && !sequence.grammar->is_late() && sequence.grammar->has_drafts() &&
         sequence.grammar->record().is_active(n_tokens);
}

/// Whether there will be enough drafts once the token in flight is known. It is expected to be the first forced one.
bool promises_forced_text(const Sequence& sequence, grammar::MatcherWork& work) {
  return sequence.grammar->forced_tokens(work).size() > static_cast<std::size_t>(kLeastForced);
}

/// The most drafts of a decode whose tokens are all known, within its length and its lists.
std::int32_t n_possible(const PlanSketch& sketch, const Sequence& sequence) {
  if (sequence.schedule->n_samples_in_flight != 1) return 0;
  if (!speculates(sequence, sequence.n_tokens()) && !drafts_forced_text(sequence, sequence.n_tokens())) return 0;
  std::int32_t n = std::min(kMaxDraftTokens, sequence.task->max_len - sequence.n_tokens_bound());
  if (const std::int32_t n_entries = sequence.n_list_entries(); n_entries > 0)
    n = static_cast<std::int32_t>(std::min<std::int64_t>(n, sketch.max_list_entries / n_entries));
  return n;
}

/// Drafts of text that the grammar demands, as far as they are expected to pay.
std::vector<TokenId> forced_drafts(Sequence& sequence, std::int32_t n_most, double least_probability,
                                   grammar::MatcherWork& work) {
  if (!drafts_forced_text(sequence, sequence.n_tokens())) return {};
  const std::vector<TokenId>& tokens = sequence.grammar->forced_tokens(work);
  if (tokens.empty()) return {};
  const std::int32_t n_wanted = std::min(n_most, sequence.grammar->record().n_worthwhile(least_probability));
  return {tokens.begin(), tokens.begin() + std::min(std::ssize(tokens), std::ptrdiff_t{n_wanted})};
}

}  // namespace

bool Scheduler::may_draft(const Sequence& sequence) const {
  if (options_.max_drafts == 0) return false;
  return sequence.schedule->speculation || (sequence.grammar != nullptr && sequence.grammar->has_drafts());
}

/// Whether the sequence must know a token in flight before it can continue or draft.
bool Scheduler::wants_its_token(Sequence& sequence) {
  SequenceSchedule& schedule = sequence.schedule.write();
  if (schedule.n_drafts_in_flight > 0) return true;
  if (schedule.n_samples_in_flight == 0) return false;
  const bool has_speculation = speculates(sequence, sequence.n_tokens_bound());
  const bool has_forced_text = drafts_forced_text(sequence, sequence.n_tokens_bound());
  if (!options_.drafters_wait_alone) return has_speculation || has_forced_text;
  return (has_speculation && schedule.speculation->promises(schedule.tokens)) ||
         (has_forced_text && promises_forced_text(sequence, draft_work_));
}

bool Scheduler::awaits_commit() {
  if (n_speculating_ == 0) return false;
  std::int32_t n_waiting = 0;
  std::int32_t n_others = 0;
  for (const auto& [rank, sequence] : policy_.running()) {
    if (wants_its_token(*sequence))
      ++n_waiting;
    else if (sequence->n_rows_left() > 0)
      ++n_others;
  }
  return n_waiting > (options_.drafters_wait_alone ? n_others : 0);
}

/// Whether a decoding sequence has no row in the step being planned, so that it can draft in the next one.
bool Scheduler::sits_out(Sequence& sequence) {
  if (n_speculating_ == 0) return false;
  SequenceSchedule& schedule = sequence.schedule.write();
  if (!options_.drafters_wait_alone || schedule.n_samples_in_flight == 0) return false;
  const std::int32_t n_tokens = sequence.n_tokens_bound();
  const bool is_worth_it = (speculates(sequence, n_tokens) && schedule.speculation->is_worth_a_step(schedule.tokens)) ||
                           (drafts_forced_text(sequence, n_tokens) && promises_forced_text(sequence, draft_work_) &&
                            sequence.grammar->record().n_worthwhile(kLeastProbability) >= kLeastForced);
  const auto n_running = policy_.n_running();
  return is_worth_it && row_cost_.may_pay(n_running, n_running);
}

/// Gives the remaining rows of the step to drafts, an equal share to each sequence that may draft.
void Scheduler::plan_drafts(PlanSketch& sketch) {
  if (n_speculating_ == 0 || options_.max_drafts == 0 || sketch.budget == 0 || sketch.max_scores == 0) return;
  sketch.max_list_entries = options_.max_list_entries - n_list_entries_;
  std::vector<std::size_t> able;
  for (std::size_t i = 0; i < static_cast<std::size_t>(sketch.plan.n_decodes); ++i)
    if (n_possible(sketch, *sketch.members[i]) > 0) able.push_back(i);
  if (able.empty()) return;
  const bool takes_all = options_.drafts_always || (options_.has_mtp && !options_.uses_step_times);
  const RowCost::Allowance allowance =
      takes_all ? RowCost::Allowance{0, 1 << 20} : row_cost_.allow(sketch.plan.n_decodes, sketch.plan.n_rows);
  std::int32_t n_left = std::min({allowance.n_drafts, options_.max_drafts, sketch.budget, sketch.max_scores});
  for (std::size_t i = 0; i < able.size() && n_left > 0; ++i) {
    Sequence& sequence = *sketch.members[able[i]];
    const auto n_share =
        static_cast<std::int32_t>((static_cast<std::size_t>(n_left) + able.size() - i - 1) / (able.size() - i));
    n_left -= add_drafts(sketch, sketch.plan.sequences[able[i]], sequence, std::min(n_share, n_possible(sketch, sequence)),
                         allowance.least_probability);
  }
}

/// Whether every layer group has the blocks that the running sequences need.
bool Scheduler::has_spare_blocks() const {
  for (int g = 0; g < cache_.n_groups(); ++g)
    if (cache_.n_available(g) < n_claimed(g)) return false;
  return true;
}

/// Adds drafts of one sequence, at most `n_most`. Returns their number.
std::int32_t Scheduler::add_drafts(PlanSketch& sketch, PlannedSequence& planned, Sequence& sequence, std::int32_t n_most,
                                   double least_probability) {
  SequenceSchedule& schedule = sequence.schedule.write();
  const bool has_state = cache_.states() != nullptr;
  if (has_state) n_most = std::min(n_most, n_drafts_to_snapshot(sequence, planned.first_position));
  if (n_most == 0) return 0;
  std::vector<TokenId> drafts = forced_drafts(sequence, n_most, least_probability, draft_work_);
  const bool is_forced = !drafts.empty();
  if (!is_forced && speculates(sequence, sequence.n_tokens())) {
    const std::int32_t n_wanted = std::min(n_most, schedule.speculation->n_worthwhile(least_probability));
    if (n_wanted > 0) drafts = schedule.speculation->propose(schedule.tokens, n_wanted);
  }
  // A stop id ends the sequence, so no draft follows it.
  drafts.erase(std::ranges::find_first_of(drafts, sequence.task->stop_ids), drafts.end());
  if (sequence.grammar != nullptr) drafts.resize(sequence.grammar->n_allowed(drafts, draft_work_));
  if (drafts.empty()) return 0;
  const std::int32_t n_positions = schedule.n_planned + static_cast<std::int32_t>(drafts.size());
  if (!cache_.covers(schedule.table, n_positions)) {
    // Drafts take blocks that their own sequence needs anyway, so the first answer stays valid.
    if (!sketch.has_spare_blocks) sketch.has_spare_blocks = has_spare_blocks();
    if (!*sketch.has_spare_blocks || !cache_.extend(schedule.table, n_positions)) return 0;
  }

  if (has_state) {
    planned.state.kept = cache_.keep_drafts(schedule.table, static_cast<std::int32_t>(drafts.size()), sketch.plan.step);
    drafts.resize(static_cast<std::size_t>(planned.state.kept.n));
  }
  const auto n_drafts = static_cast<std::int32_t>(drafts.size());
  if (n_drafts == 0) return 0;

  planned.has_forced_drafts = is_forced;
  planned.first_draft_slot = SlotId{options_.max_num_seqs + sketch.plan.n_drafts};
  for (std::int32_t i = 0; i < n_drafts; ++i) sketch.plan.reset_slots.push_back(SlotId{planned.first_draft_slot.value + i});
  sketch.add_drafts(planned, sequence, std::move(drafts));
  schedule.n_planned += n_drafts;
  schedule.n_samples_in_flight += n_drafts;
  schedule.n_drafts_in_flight = n_drafts;
  return n_drafts;
}

/// Applies the results of a sequence's drafts; its new tokens have been appended already.
void Scheduler::take_drafts(Sequence& sequence, const PlannedSequence& planned, const StepOutcome& outcome) {
  const auto n_drafts = static_cast<std::int32_t>(planned.drafts.size());
  check(outcome.n_accepted <= n_drafts && static_cast<std::size_t>(outcome.n_accepted) <= outcome.tokens.size(),
        "Scheduler: more drafts were accepted than there were");
  SequenceSchedule& schedule = sequence.schedule.write();
  schedule.n_drafts_in_flight = 0;
  if (cache_.states() != nullptr && schedule.state == SequenceState::running)
    cache_.accept_drafts(schedule.table, outcome.n_accepted);
  schedule.is_slot_behind = (outcome.n_accepted > 0 || has_dropped_sample(outcome)) && schedule.state == SequenceState::running;
  const std::int32_t n_verified = has_dropped_sample(outcome) ? outcome.n_drafts : n_drafts;
  schedule.n_drafts += n_verified;
  schedule.n_accepted += outcome.n_accepted;
  if (n_verified == 0) return;
  Speculation& record = planned.has_forced_drafts ? sequence.grammar->record() : *schedule.speculation;
  record.verified(n_verified, outcome.n_accepted, sequence.n_tokens());
}

/// Whether a sample of a sequence with drafts was dropped: then there is no token after the accepted drafts.
bool Scheduler::has_dropped_sample(const StepOutcome& outcome) {
  return !outcome.finished && static_cast<std::size_t>(outcome.n_accepted) == outcome.tokens.size();
}

void Scheduler::drop_sample(PlannedSequence& planned) {
  // With drafts, no other step has rows of the sequence: commit finds out that there are fewer tokens.
  if (!planned.drafts.empty()) return;
  check(planned.max_tokens == 1 && planned.n_rows > 0, "Scheduler: a sample is dropped that was not planned");
  planned.max_tokens = 0;
  --planned.n_rows;
  Sequence& sequence = *find(planned);
  SequenceSchedule& schedule = sequence.schedule.write();
  --schedule.n_samples_in_flight;
  if (schedule.state != SequenceState::running) return;
  --schedule.n_planned;
  schedule.is_slot_behind = true;
}

void Scheduler::took(const StepPlan& plan, double seconds) {
  if (options_.uses_step_times && plan.n_decodes > 0 && plan.n_prefill() == 0)
    row_cost_.observe(plan.n_decodes, plan.n_rows, seconds);
  if (options_.paces_prefill) pace_.observe(plan.n_decodes + plan.n_drafts, plan.n_prefill(), seconds);
}

}  // namespace baton
