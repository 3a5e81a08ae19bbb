/// What the scheduler does when sequences of several tenants, or of very different sizes, are there: shares of a step, and
/// preemption between tenants and for short sequences.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/schedule/pending_blocks.h"
#include "engine/schedule/plan_sketch.h"
#include "engine/schedule/scheduler.h"

namespace baton {

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
