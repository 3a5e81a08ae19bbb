/// Plans and commits steps.
#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "core/check.h"
#include "engine/schedule/pending_blocks.h"
#include "engine/schedule/plan_sketch.h"

namespace baton {

namespace {

void prefetch_ahead(std::span<Sequence* const> sequences, std::size_t i) {
  if (i + kPrefetchDistance < sequences.size()) sequences[i + kPrefetchDistance]->prefetch();
}

/// Whether the engine is to pin it.
bool is_ended_prefix(const Sequence& sequence) {
  return sequence.is_prefix_prefill() && sequence.schedule->finished == FinishReason::length;
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, KvCache& cache)
    : options_(options),
      cache_(cache),
      of_slot_(static_cast<std::size_t>(std::max(options.max_num_seqs, 0)), nullptr),
      running_blocks_(options.max_num_seqs),
      policy_(options.by_size, options.max_prefill_tokens) {
  check(options.max_num_seqs > 0 && options.max_num_batched_tokens > 0 && options.max_prefill_tokens >= 0,
        "Scheduler: the limits must be positive");
  for (std::int32_t slot = options.max_num_seqs; slot-- > 0;) free_slots_.push_back(SlotId{slot});
}

Scheduler::~Scheduler() = default;

Sequence* Scheduler::find(SequenceId id) {
  const auto at = sequences_.find(id);
  return at == sequences_.end() ? nullptr : at->second.get();
}
const Sequence* Scheduler::find(SequenceId id) const {
  const auto at = sequences_.find(id);
  return at == sequences_.end() ? nullptr : at->second.get();
}
void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  const SequenceId id = sequence->task->id;
  check(last_id_ < id, "Scheduler: ids must ascend");
  last_id_ = id;
  check(sequence->task->prompt_len >= 1 && sequence->task->prompt_len == sequence->n_tokens() &&
            sequence->task->max_len >= sequence->task->prompt_len,
        "Scheduler: a sequence needs a prompt and a length that holds it");
  for (int g = 0; g < cache_.n_groups(); ++g)
    check(cache_.n_needed_alone(g, sequence->max_positions()) <= cache_.n_blocks(g),
          "Scheduler: the cache cannot hold the sequence alone");
  check(sequence->n_list_entries() <= options_.max_list_entries &&
            cache_.n_blocks_for(sequence->max_positions()) <= options_.max_block_entries,
        "Scheduler: a step cannot hold the sequence alone");
  sequence->schedule.write().tag = policy_.waiting().tag_of(*sequence);
  policy_.waiting().add(*sequence);
  sequences_.emplace(id, std::move(sequence));
}

const Sequence* Scheduler::find(const PlannedSequence& planned) const {
  const Sequence* sequence = holder_of(planned.slot);
  return sequence != nullptr && sequence->task->id == planned.id ? sequence : find(planned.id);
}

void Scheduler::reuse(StepPlan plan) {
  plan.sequences.clear();
  plan.reset_slots.clear();
  plan.admitted.clear();
  spare_sequences_ = std::move(plan.sequences);
}

StepPlan Scheduler::plan() {
  check(std::ranges::none_of(finished_, [this](SequenceId id) { return is_ended_prefix(*find(id)); }),
        "Scheduler: a prefix has ended and was not taken before the next plan");
  PlanSketch sketch;
  sketch.plan.sequences = std::move(spare_sequences_);
  sketch.members = std::move(members_);
  sketch.members.clear();
  sketch.plan.step = next_step_++;
  sketch.budget = options_.max_num_batched_tokens;
  sketch.max_scores = options_.max_scores;
  sketch.n_loads = max_loads();
  policy_.begin_plan();
  sketch.reserve(policy_.order().size());
  if (cache_.has_prefix_caching() && !free_slots_.empty()) begin_cohorts();
  if (policy_.waiting().has_several_tenants()) {
    make_way(sketch);
    hold_back_decodes(sketch);
  }
  if (options_.by_size) make_way_for_short(sketch);
  const std::int32_t n_made_way = sketch.plan.n_preempted;
  if (n_loading_ > 0) plan_loads(sketch);
  plan_decodes(sketch);
  sketch.plan.n_decodes = sketch.plan.n_rows;
  sketch.budget = policy_.prefill_limit(sketch.budget, sketch.plan.n_decodes > 0);
  if (options_.paces_prefill && sketch.plan.n_decodes > 0) pace(sketch);
  if (policy_.waiting().has_several_tenants()) share_out(sketch);
  plan_prefills(sketch);
  for (std::size_t i = 0; i < sketch.members.size(); ++i) {
    prefetch_ahead(sketch.members, i);
    if (cache_.states() != nullptr) move_state(*sketch.members[i], sketch.plan.sequences[i], sketch.plan.step);
    apply(*sketch.members[i], sketch.plan.sequences[i]);
    begin_slot_anew(*sketch.members[i], sketch.plan);
  }
  n_deferred_ = 0;
  // When running sequences lack blocks, the remaining ones are for them.
  if (sketch.plan.n_preempted == n_made_way) {
    plan_waiting(sketch);
    top_up(sketch);
  }
  sketch.budget += sketch.n_withheld;
  if (sketch.plan.n_preempted == 0) plan_drafts(sketch);
  end_cached_prefixes(sketch);
  draft_work_ = {kDraftWork};
  members_ = std::move(sketch.members);
  return std::move(sketch.plan);
}

/// Plans the rows of running sequences that decode (one row left), and lists the prefilling ones (several rows left).
/// The order of the running sequences is that before the plan; some of them may be preempted meanwhile.
void Scheduler::plan_decodes(PlanSketch& sketch) {
  for (std::size_t i = 0; i < policy_.order().size(); ++i) {
    prefetch_ahead(policy_.order(), i);
    Sequence& sequence = *policy_.order()[i];
    const std::int32_t n_left = sequence.n_rows_left();
    if (sequence.schedule->state != SequenceState::running || n_left == 0) continue;
    if (n_left > 1) {
      sketch.prefills.push_back(i);
      continue;
    }
    if (sketch.budget == 0) return;
    if (!sits_out(sequence) && !sketch.holds_back(sequence.schedule->slot)) add_rows(sketch, sequence, n_left);
  }
}

/// Withholds rows of the step from prompts that later steps compute at less cost.
void Scheduler::pace(PlanSketch& sketch) {
  std::int64_t n_waiting = static_cast<std::int64_t>(
      pace_.rows_of_waiting() * static_cast<double>(std::min(policy_.waiting().size(), free_slots_.size())));
  for (const std::size_t i : sketch.prefills)
    if (policy_.order()[i]->schedule->state == SequenceState::running) n_waiting += policy_.order()[i]->n_rows_left();
  if (n_waiting == 0) return;
  const auto n_rows = static_cast<std::int32_t>(std::min<std::int64_t>(n_waiting, std::numeric_limits<std::int32_t>::max()));
  sketch.n_withheld = sketch.budget - std::min(sketch.budget, pace_.n_rows(sketch.plan.n_decodes, n_rows, sketch.budget));
  sketch.budget -= sketch.n_withheld;
}

/// Plans the rows of the listed sequences that prefill.
void Scheduler::plan_prefills(PlanSketch& sketch) {
  for (const std::size_t i : sketch.prefills) {
    Sequence& sequence = *policy_.order()[i];
    if (sequence.schedule->state != SequenceState::running) continue;
    if (sketch.budget == 0) return;
    const std::int32_t n_left = sequence.n_rows_left();
    const bool has_others = !policy_.waiting().is_empty() || i + 1 != policy_.order().size();
    const std::int32_t n_kept = sketch.n_kept_from(sequence, n_left, has_others && !policy_.is_alone(sequence));
    sketch.budget -= n_kept;
    add_rows(sketch, sequence, n_left);
    sketch.budget += n_kept;
  }
}

/// Plans as many of the sequence's `n_left` rows as the step has room for.
void Scheduler::add_rows(PlanSketch& sketch, Sequence& sequence, std::int32_t n_left) {
  const std::int32_t n_rows = sketch.n_rows_of(sequence, sequence.schedule->n_planned, n_left);
  if (n_rows > 0 && make_room(sketch, sequence, sequence.schedule->n_planned + n_rows)) sketch.add(sequence, n_rows);
}

/// Gives rows that were kept for others and not used to the prompts in the step, as far as there are blocks.
void Scheduler::top_up(PlanSketch& sketch) {
  for (std::size_t i = static_cast<std::size_t>(sketch.plan.n_decodes); i < sketch.plan.sequences.size(); ++i) {
    PlannedSequence& planned = sketch.plan.sequences[i];
    Sequence& sequence = *sketch.members[i];
    if (sketch.budget == 0) return;
    const std::int32_t n_left = sequence.schedule->state == SequenceState::running ? sequence.n_rows_left() : 0;
    if (n_left == 0 || planned.max_tokens > 0 || sequence.stops_at(sequence.schedule->n_planned)) continue;
    const std::int32_t n_rows = sketch.n_rows_of(sequence, sequence.schedule->n_planned, n_left);
    if (n_rows > 0 && cache_.extend(sequence.schedule.write().table, sequence.schedule->n_planned + n_rows))
      apply(sequence, sketch.grow(planned, sequence, n_rows));
  }
}

/// Extends the sequence's table to `n_positions` positions, preempting running sequences if need be. Returns false if the
/// sequence itself was preempted.
bool Scheduler::make_room(PlanSketch& sketch, Sequence& sequence, std::int32_t n_positions) {
  while (!cache_.extend(sequence.schedule.write().table, n_positions)) {
    Sequence* const victim = policy_.victim();
    check(victim != nullptr && policy_.running().size() > 1, "Scheduler: the cache cannot hold the only running sequence");
    preempt(sketch, *victim);
    if (victim == &sequence) return false;
  }
  return true;
}

void Scheduler::preempt(PlanSketch& sketch, Sequence& victim) {
  sketch.drop(victim);
  ++sketch.plan.n_preempted;
  SequenceSchedule& schedule = victim.schedule.write();
  ++schedule.n_preemptions;
  sketch.preempted.push_back(victim.task->id);
  schedule.n_lost = schedule.n_planned;
  leave_slot(victim);
  schedule.state = SequenceState::waiting;
  schedule.n_planned = 0;
  schedule.n_committed = 0;
  policy_.waiting().add(victim);
}

/// Resets a slot that accepted drafts have left behind, so that it begins with the sequence's current tokens.
void Scheduler::begin_slot_anew(Sequence& sequence, StepPlan& plan) {
  SequenceSchedule& schedule = sequence.schedule.write();
  if (!std::exchange(schedule.is_slot_behind, false)) return;
  schedule.n_before_slot = sequence.n_generated();
  plan.reset_slots.push_back(schedule.slot);
}

/// Gives back slot and blocks. Full blocks of known tokens stay cached: all steps that compute them are enqueued.
void Scheduler::leave_slot(Sequence& sequence) {
  SequenceSchedule& schedule = sequence.schedule.write();
  running_blocks_.remove(schedule.slot, schedule.table.hashes);
  cache_.release(schedule.table, schedule.tokens, std::min(sequence.n_tokens(), schedule.n_planned), next_step_);
  free_slots_.push_back(schedule.slot);
  of_slot_[static_cast<std::size_t>(schedule.slot.value)] = nullptr;
  schedule.slot = SlotId{};
  schedule.is_slot_behind = false;
  schedule.stops.clear();
  n_loading_ -= std::exchange(schedule.is_loading, false) ? 1 : 0;
  schedule.n_held_back = 0;
  policy_.stopped(sequence);
  n_speculating_ -= may_draft(sequence) ? 1 : 0;
  n_list_entries_ -= sequence.n_list_entries();
  n_block_entries_ -= cache_.n_blocks_for(sequence.max_positions());
}

/// Adds the planned rows to the sequence's state.
void Scheduler::apply(Sequence& sequence, const PlannedSequence& planned) {
  SequenceSchedule& schedule = sequence.schedule.write();
  schedule.n_planned += planned.n_rows;
  schedule.n_samples_in_flight += planned.max_tokens;
  if (cache_.states() != nullptr) cache_.advance_state(schedule.table, planned.n_rows);
  policy_.waiting().charge(sequence, planned.n_rows, planned.max_tokens);
  publish(sequence);
}

/// Makes the sequence's full blocks visible to later steps.
void Scheduler::publish(Sequence& sequence) {
  SequenceSchedule& schedule = sequence.schedule.write();
  cache_.publish(schedule.table, schedule.tokens, sequence.n_filled(), next_step_);
  running_blocks_.update(schedule.slot, schedule.table.hashes);
}

/// Whether the step in flight may have rows of a waiting sequence, because this plan preempted it, or samples its next
/// token. It is admitted by a later plan: a commit would take those rows for rows of the slot that it has then.
bool Scheduler::is_in_flight(const PlanSketch& sketch, const Sequence& sequence) {
  return sequence.schedule->n_samples_in_flight > 0 ||
         std::ranges::find(sketch.preempted, sequence.task->id) != sketch.preempted.end();
}

/// Admits waiting sequences in order, as far as row budget, slots and blocks allow.
void Scheduler::plan_waiting(PlanSketch& sketch) {
  if (policy_.waiting().is_empty()) return;
  PendingBlocks pending{cache_.block_len(), {}, {}};
  for (const Sequence* sequence : sketch.members) pending.add(*sequence);
  if (n_loading_ > 0)
    for (const auto& [rank, sequence] : policy_.running())
      if (sequence->schedule->is_loading) pending.add(*sequence);
  std::vector<FairQueue::Turn> turns = policy_.waiting().turns();
  while (FairQueue::Turn* turn = policy_.next(turns, sketch.limits, sketch.budget)) {
    if (sketch.budget == 0 || free_slots_.empty()) return;
    if (turn->tenant == sketch.limits.next_admitted) sketch.limits.next_admitted.reset();
    auto& head = turn->head;
    // No other sequence takes the place of a preempted one that is still in flight.
    if (is_in_flight(sketch, *head->second)) return;
    if (waits_for_prefix(sketch, *head->second, pending)) {
      ++n_deferred_;
      ++head;
      continue;
    }
    Sequence& next = *head->second;
    ++head;
    if (!admit(sketch, next)) return;  // else it has left the queue
    if (next.schedule->state == SequenceState::running) pending.add(next);
  }
}

/// Whether another sequence is computing blocks that this one needs. A later plan then finds them cached.
bool Scheduler::waits_for_prefix(const PlanSketch& sketch, Sequence& sequence, PendingBlocks& pending) const {
  if (pending.are_needed_by(sequence)) return true;
  SequenceSchedule& schedule = sequence.schedule.write();
  const PrefixTree::Found found = cache_.find(schedule.table, schedule.tokens, sequence.n_matchable(), sketch.plan.step);
  const auto index = static_cast<std::size_t>(found.n_ready);
  if (found.n_pending == 0 && !pending.is_begun(sequence, index)) return waits_for_snapshot(sequence, found);
  pending.blocks.push_back({index, schedule.table.hashes[index]});
  return true;
}

void Scheduler::commit(const StepPlan& plan, std::span<const StepOutcome> outcomes) {
  auto planned = plan.sequences.begin();
  for (const StepOutcome& outcome : outcomes) {
    planned = std::ranges::find(planned, plan.sequences.end(), outcome.id, &PlannedSequence::id);
    check(planned != plan.sequences.end(), "Scheduler: a result of a sequence that is not in the step, or not in its order");
    const auto next = static_cast<std::size_t>(planned - plan.sequences.begin()) + kPrefetchDistance;
    if (next < plan.sequences.size())
      if (const Sequence* coming = holder_of(plan.sequences[next].slot)) coming->prefetch_next_token();
    Sequence* sequence = find(*planned);
    if (sequence == nullptr || sequence->schedule->state == SequenceState::finished) continue;
    SequenceSchedule& schedule = sequence->schedule.write();
    const auto n_drafts = static_cast<std::int32_t>(planned->drafts.size());
    const std::int32_t n_missing = n_drafts > 0 ? n_drafts - outcome.n_accepted + (has_dropped_sample(outcome) ? 1 : 0)
                                                : planned->max_tokens - static_cast<std::int32_t>(outcome.tokens.size());
    for (const TokenOutput& token : outcome.tokens) schedule.tokens.push_back(token.token);
    schedule.n_samples_in_flight -= planned->max_tokens;
    if (outcome.stop_token) schedule.stop_token = outcome.stop_token;
    if (n_drafts > 0) take_drafts(*sequence, *planned, outcome);
    check(n_missing >= 0 && sequence->n_tokens() <= sequence->task->max_len && schedule.n_samples_in_flight >= 0,
          "Scheduler: more tokens than were planned");
    // A sequence that was preempted meanwhile has no rows; it only gets its token.
    if (schedule.state == SequenceState::running) {
      schedule.n_committed = planned->first_position + planned->n_rows;
      if (n_missing > 0 && (n_drafts > 0 || !outcome.finished)) shorten(*sequence, n_missing);
    }
    const bool is_filled = sequence->is_prefill_only() && schedule.n_committed == sequence->task->prompt_len;
    if (outcome.finished || is_filled) {
      end(*sequence, outcome.finished.value_or(FinishReason::length));
    } else if (schedule.state == SequenceState::running) {
      publish(*sequence);
      cache_.free_behind_window(schedule.table, schedule.n_committed, sequence->task->prompt_len);
    }
  }
}

void Scheduler::shorten(Sequence& sequence, std::int32_t n_positions) {
  SequenceSchedule& schedule = sequence.schedule.write();
  check(schedule.n_committed == schedule.n_planned, "Scheduler: a sequence is shortened below a step in flight");
  schedule.n_planned -= n_positions;
  schedule.n_committed -= n_positions;
  if (!is_settled(sequence)) cache_.shorten(schedule.table, schedule.n_planned);
}

void Scheduler::end(Sequence& sequence, FinishReason reason) {
  if (sequence.schedule->state == SequenceState::running) leave_slot(sequence);
  policy_.waiting().remove(sequence);
  sequence.schedule.write().state = SequenceState::finished;
  sequence.schedule.write().finished = reason;
  finished_.push_back(sequence.task->id);
}

void Scheduler::finish(SequenceId id, FinishReason reason) {
  Sequence* sequence = find(id);
  if (sequence != nullptr && sequence->schedule->state != SequenceState::finished) end(*sequence, reason);
}

std::vector<std::unique_ptr<Sequence>> Scheduler::take_finished() {
  std::vector<std::unique_ptr<Sequence>> taken;
  for (const SequenceId id : finished_) {
    const auto at = sequences_.find(id);
    taken.push_back(std::move(at->second));
    sequences_.erase(at);
  }
  finished_.clear();
  return taken;
}

std::vector<SequenceId> Scheduler::unfinished() const {
  std::vector<SequenceId> ids;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->schedule->state != SequenceState::finished) ids.push_back(id);
  }
  std::ranges::sort(ids);
  return ids;
}

}  // namespace baton
