/// Admission: which waiting sequences there is room for, and what they find in the cache and in the host tier.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/check.h"
#include "engine/schedule/admission_policy.h"
#include "engine/schedule/pending_blocks.h"
#include "engine/schedule/plan_sketch.h"
#include "engine/schedule/scheduler.h"

namespace baton {

/// Blocks of a layer group that a running sequence still needs for its tokens and one more block.
std::int32_t Scheduler::n_claimed_by(const Sequence& sequence, int group) const {
  const std::int32_t n_soon = std::min(sequence.n_tokens_bound() + cache_.block_len(), sequence.max_positions());
  return cache_.n_lacking(sequence.schedule->table, group, n_soon);
}

std::int32_t Scheduler::n_claimed(int group) const {
  std::int32_t n = 0;
  for (const auto& [rank, sequence] : policy_.running()) n += n_claimed_by(*sequence, group);
  return n;
}

/// Whether a step can hold the sequence's lists and blocks beside those of the running sequences, however long all of
/// them become.
bool Scheduler::fits_step(const Sequence& sequence) const {
  return n_list_entries_ + sequence.n_list_entries() <= options_.max_list_entries &&
         n_block_entries_ + cache_.n_blocks_for(sequence.max_positions()) <= options_.max_block_entries;
}

/// Whether there are a slot for its state, and blocks for the sequence's tokens and one more, or, for a settled sequence, for all it can ever need,
/// beside what the running sequences need. Shared blocks count once.
bool Scheduler::has_blocks_for(PlanSketch& sketch, Sequence& sequence) const {
  SequenceSchedule& schedule = sequence.schedule.write();
  const PrefixTree::Found found = cache_.find(schedule.table, schedule.tokens, sequence.n_matchable(), sketch.plan.step);
  const std::int32_t n_soon = is_settled(sequence)
                                  ? sequence.max_positions()
                                  : std::min(sequence.n_tokens() + cache_.block_len(), sequence.max_positions());
  if (sketch.n_claimed.empty())
    for (int g = 0; g < cache_.n_groups(); ++g) sketch.n_claimed.push_back(n_claimed(g));
  for (int g = 0; g < cache_.n_groups(); ++g) {
    const auto at = static_cast<std::size_t>(g);
    const std::int32_t n_wanted = cache_.n_lacking(g, found.n_ready, 0, n_soon);
    if (n_wanted + sketch.n_claimed[at] > cache_.n_available(g) - found.n_unheld[at]) return false;
  }
  return cache_.states() == nullptr || cache_.can_begin_state(sketch.plan.step);
}

/// Loads blocks that follow the sequence's planned positions from the host tier, and then the state that it continues from: as
/// much as the plan may still load. If there is more, it continues to load in the next plan and has no rows until then.
void Scheduler::load_blocks(PlanSketch& sketch, Sequence& sequence) {
  SequenceSchedule& schedule = sequence.schedule.write();
  n_loading_ -= std::exchange(schedule.is_loading, false) ? 1 : 0;
  const std::int32_t first = schedule.n_planned / cache_.block_len();
  const bool has_states = cache_.states() != nullptr;
  const std::int32_t n_there =
      cache_.n_in_tier(schedule.table, schedule.tokens, sequence.n_matchable(), first, sketch.n_loads + 1);
  const std::int32_t n_wanted = std::min(n_there, sketch.n_loads);
  std::int32_t n_loaded = 0;
  // Room may be short for a sequence that was admitted earlier. It then computes the rest, for which room is made. Making
  // room evicts other blocks, which may take the place of the blocks that it wants.
  if (n_wanted > 0 && cache_.extend(schedule.table, (first + n_wanted) * cache_.block_len()))
    n_loaded = cache_.load(schedule.table, schedule.tokens, first, n_wanted, sketch.plan.step);
  sketch.n_loads -= n_loaded;
  const std::int32_t n_tokens = n_loaded * cache_.block_len();
  sketch.plan.n_loaded_tokens += n_tokens;
  schedule.n_loaded += n_tokens;
  schedule.n_planned += n_tokens;
  schedule.n_committed = schedule.n_planned;
  const bool has_all = n_loaded < n_wanted || n_there == n_wanted;
  if (has_all && (!has_states || find_state(sketch, sequence))) return;
  schedule.is_loading = true;
  ++n_loading_;
}

/// What the sequence found is known: it computes the rest.
void Scheduler::begin_rows(PlanSketch& sketch, Sequence& sequence, std::int32_t block_len) {
  SequenceSchedule& schedule = sequence.schedule.write();
  if (schedule.n_admissions++ == 0) {
    schedule.n_cached = schedule.n_planned;
    schedule.n_replayed = std::max(0, schedule.table.n_found_blocks * block_len - schedule.n_planned);
  } else {
    sketch.plan.n_recomputed_tokens += std::max(0, schedule.n_lost - schedule.n_planned);
  }
  sketch.plan.admitted.push_back(sequence.task->id);
}

/// A registered prefix needs no rows. The engine pins it after this plan, so it keeps its blocks to the plan's end, and the plan
/// leaves its snapshot alone.
void Scheduler::keep_cached_prefix(PlanSketch& sketch, Sequence& sequence) {
  if (cache_.states() != nullptr) cache_.protect_source(sequence.schedule->table, sketch.plan.step);
  sketch.cached_prefixes.push_back(&sequence);
  ++sketch.plan.n_cached_prefixes;
}

void Scheduler::end_cached_prefixes(PlanSketch& sketch) {
  for (Sequence* const prefix : sketch.cached_prefixes)
    if (prefix->schedule->state == SequenceState::running) end(*prefix, FinishReason::length);
}

/// Continues to load for the sequences that earlier plans admitted. Each that is not done has a row reserved, so that no
/// more sequences run than a step has rows.
void Scheduler::plan_loads(PlanSketch& sketch) {
  for (Sequence* const sequence : policy_.order()) {
    if (sequence->schedule->state != SequenceState::running || !sequence->schedule->is_loading) continue;
    load_blocks(sketch, *sequence);
    if (sequence->schedule->is_loading) {
      sketch.budget = std::max(0, sketch.budget - 1);
      continue;
    }
    begin_rows(sketch, *sequence, cache_.block_len());
    if (sequence->n_rows_left() == 0) keep_cached_prefix(sketch, *sequence);
  }
}

/// Begins a cohort for each tenant whose first waiting sequence is in none. If it is large enough, its sequences take each
/// other's tags, so that those with common prompts follow one another. In a small one most would run together in any order.
void Scheduler::begin_cohorts() {
  for (const std::int32_t tenant : policy_.waiting().tenants()) {
    FairQueue::Places places = policy_.waiting().take_cohort(tenant, kCohortTurns * of_slot_.size());
    std::vector<Sequence*> order;
    for (const auto& place : places) order.push_back(place.mapped());
    if (order.size() >= kLeastCohortTurns * policy_.running().size()) {
      // Not earlier: the hashes of every prompt that waits could take more memory than the engine keeps for its steps.
      for (Sequence* const sequence : order) {
        SequenceSchedule& schedule = sequence->schedule.write();
        cache_.hash(schedule.table, schedule.tokens, std::min(sequence->n_matchable(), kMostSharedBlocks * cache_.block_len()));
      }
      gather_sharers(order, running_blocks_);
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i]->schedule.write().tag = places[i].key().tag;
      places[i].key().id = order[i]->task->id;
      places[i].mapped() = order[i];
    }
    policy_.waiting().put_back(tenant, std::move(places));
  }
}

/// Admits a waiting sequence if the step and the cache have room for it.
bool Scheduler::admit(PlanSketch& sketch, Sequence& sequence) {
  if (sketch.max_scores == 0 && sequence.n_scores(0, sequence.task->prompt_len) > 0) return false;
  if (!fits_step(sequence) || !has_blocks_for(sketch, sequence)) return false;
  SequenceSchedule& schedule = sequence.schedule.write();
  cache_.begin(schedule.table, schedule.tokens, sequence.n_matchable(), sketch.plan.step);
  const bool has_reserve = !is_settled(sequence) || cache_.reserve(schedule.table, sequence.max_positions());
  schedule.n_planned = schedule.n_committed = schedule.table.n_cached_blocks * cache_.block_len();
  if (cache_.states() != nullptr) cache_.begin_state(schedule.table, sketch.plan.step);
  schedule.n_loaded = 0;
  load_blocks(sketch, sequence);
  const std::int32_t n_left = sequence.n_rows_left();
  pace_.admitted(n_left);
  const std::int32_t n_kept = sketch.n_kept_from(sequence, n_left, policy_.waiting().size() > 1 && !policy_.is_alone(sequence));
  sketch.budget -= n_kept;
  const std::int32_t n_rows = sketch.n_rows_of(sequence, schedule.n_planned, n_left);
  sketch.budget += n_kept;
  const bool has_room = has_reserve && cache_.extend(schedule.table, schedule.n_planned + n_rows);
  check(has_room, "Scheduler: blocks that were available are not");

  schedule.slot = free_slots_.back();
  free_slots_.pop_back();
  of_slot_[static_cast<std::size_t>(schedule.slot.value)] = &sequence;
  policy_.started(sequence);
  running_blocks_.update(schedule.slot, schedule.table.hashes);
  n_speculating_ += may_draft(sequence) ? 1 : 0;
  n_list_entries_ += sequence.n_list_entries();
  n_block_entries_ += cache_.n_blocks_for(sequence.max_positions());
  schedule.state = SequenceState::running;
  schedule.n_before_slot = sequence.n_generated();
  if (schedule.is_loading) {
    schedule.is_slot_behind = true;  // the slot is reset with the first row
    --sketch.budget;                 // as in plan_loads
  } else {
    begin_rows(sketch, sequence, cache_.block_len());
    if (n_rows == 0) {
      keep_cached_prefix(sketch, sequence);
      return true;
    }
    sketch.plan.reset_slots.push_back(schedule.slot);
    sketch.add(sequence, n_rows);
    if (cache_.states() != nullptr) move_state(sequence, sketch.plan.sequences.back(), sketch.plan.step);
    apply(sequence, sketch.plan.sequences.back());
  }
  for (int g = 0; g < cache_.n_groups(); ++g) sketch.n_claimed[static_cast<std::size_t>(g)] += n_claimed_by(sequence, g);
  return true;
}

/// Holds back the decodes that must leave rows to prompts of other tenants.
void Scheduler::hold_back_decodes(PlanSketch& sketch) {
  const AdmissionPolicy::Decodes decodes = policy_.limit_decodes(sketch.limits, sketch.budget);
  for (Sequence* const sequence : decodes.kept) sequence->schedule.write().n_held_back = 0;
  if (!decodes.held_back.empty()) sketch.is_held_back.resize(of_slot_.size());
  for (Sequence* const sequence : decodes.held_back) {
    SequenceSchedule& schedule = sequence->schedule.write();
    ++schedule.n_held_back;
    sketch.is_held_back[static_cast<std::size_t>(schedule.slot.value)] = true;
  }
}

/// Shares out the prefill rows of the step, and lists the running prompts in the order of their tenants.
void Scheduler::share_out(PlanSketch& sketch) const {
  sketch.limits.shares = policy_.shares(sketch.prefills, sketch.budget, free_slots_.size());
  std::ranges::stable_sort(sketch.prefills, [order = policy_.order(), this](std::size_t a, std::size_t b) {
    return order[a]->task->tenant.id != order[b]->task->tenant.id && policy_.is_before(*order[a], *order[b]);
  });
}

/// Whether a running sequence is computing blocks that this one needs.
bool Scheduler::waits_for_running(const PlanSketch& sketch, Sequence& sequence) const {
  PendingBlocks pending{cache_.block_len(), {}, {}};
  for (const Sequence* const running : policy_.order()) pending.add(*running);
  return waits_for_prefix(sketch, sequence, pending);
}

/// Preempts sequences of a tenant that holds more than its share until there is room for the sequence that is next, which
/// this plan then admits. Steps in flight may still use the victims' slots and blocks: they run before this one.
void Scheduler::make_way(PlanSketch& sketch) {
  std::vector<FairQueue::Turn> turns = policy_.waiting().turns();
  const FairQueue::Turn* const turn = policy_.next(turns, sketch.limits, sketch.budget);
  if (turn == nullptr) return;
  Sequence& next = *turn->head->second;
  const auto has_place = [this] { return !free_slots_.empty() && n_running() < options_.max_num_batched_tokens; };
  const auto has_room = [&] {
    sketch.n_claimed.clear();
    return fits_step(next) && has_blocks_for(sketch, next);
  };
  bool has_all = has_place() && has_room();
  if (is_in_flight(sketch, next)) return sketch.n_claimed.clear();
  sketch.limits.next_admitted = turn->tenant;
  if (has_all) return sketch.n_claimed.clear();
  const bool is_deferred = waits_for_running(sketch, next);
  while (!has_all && !is_deferred) {
    Sequence* const victim =
        policy_.victim_for(next, has_place() ? AdmissionPolicy::Resource::tokens : AdmissionPolicy::Resource::slots);
    if (victim == nullptr) break;
    preempt(sketch, *victim);
    has_all = has_place() && has_room();
  }
  if (!has_all) sketch.limits.next_admitted.reset();
  sketch.n_claimed.clear();
}

/// Gives the slot of a long sequence to a short one that is next, when no slot has become free for a while. It happens only
/// while the cache has room for both, so the long one usually finds its full blocks again and computes one block again.
void Scheduler::make_way_for_short(PlanSketch& sketch) {
  const bool is_full = !policy_.waiting().is_empty() && (free_slots_.empty() || n_running() >= options_.max_num_batched_tokens);
  n_full_plans_ = is_full ? n_full_plans_ + 1 : 0;
  if (n_full_plans_ < kFullPlans || sketch.plan.n_preempted > 0) return;
  std::vector<FairQueue::Turn> turns = policy_.waiting().turns();
  const FairQueue::Turn* const turn = policy_.next(turns, sketch.limits, sketch.budget);
  if (turn == nullptr || is_in_flight(sketch, *turn->head->second)) return;
  n_full_plans_ = 0;
  Sequence& next = *turn->head->second;
  Sequence* const victim = policy_.victim_for_short(next);
  if (victim == nullptr) return;
  const bool has_room = fits_step(next) && has_blocks_for(sketch, next);
  sketch.n_claimed.clear();
  if (!has_room || waits_for_running(sketch, next)) return;
  const std::int64_t cost_left = FairQueue::kTokenCost * (victim->task->max_len - victim->n_tokens_bound());
  victim->schedule.write().tag = policy_.waiting().tag_behind(next, cost_left);
  preempt(sketch, *victim);
}

}  // namespace baton
