/// What the scheduler does when sequences of several tenants, or of very different sizes, are there: shares of a step, and
/// preemption between tenants and for short sequences.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "engine/schedule/pending_blocks.h"
#include "engine/schedule/plan_sketch.h"
#include "engine/schedule/scheduler.h"

namespace baton {

/// Chooses the decodes that have no row in a step with prompts of other tenants, so that these do not wait for long steps.
/// A tenant may decode, beside prompts of tenants that are served before it, as many sequences as cost its share by
/// weight: what max_prefill_tokens rows cost for the others. Those that were held back most often go first, so each
/// sequence is held back at most once for each other that runs.
void Scheduler::hold_back_decodes(PlanSketch& sketch) {
  const auto n_rows_left = [](const Sequence& sequence) {
    return sequence.schedule->state == SequenceState::running ? sequence.n_rows_left() : 0;
  };
  std::map<std::int32_t, bool> tenants;  // whether they have prompts
  if (sketch.next_admitted) tenants[*sketch.next_admitted] = true;
  for (const Sequence* const sequence : running_order_)
    if (n_rows_left(*sequence) > 1) tenants[sequence->task->tenant.id] = true;
  if (tenants.empty()) return;
  std::map<std::int32_t, std::vector<Sequence*>> decodes;
  for (Sequence* const sequence : running_order_)
    if (n_rows_left(*sequence) == 1) decodes[sequence->task->tenant.id].push_back(sequence);
  for (const auto& [tenant, its] : decodes) tenants.emplace(tenant, false);
  std::vector<std::pair<std::int32_t, bool>> order(tenants.begin(), tenants.end());
  std::ranges::sort(order, [this](const auto& a, const auto& b) { return waiting_.is_before(a.first, b.first); });
  const std::int32_t n_prompt_rows =
      options_.max_prefill_tokens > 0 ? std::min(options_.max_prefill_tokens, sketch.budget) : sketch.budget;
  std::int64_t weight_before = 0;  // of tenants with prompts
  for (const auto& [tenant, has_prompts] : order) {
    if (weight_before > 0)
      hold_back(sketch, decodes[tenant], n_prompt_rows * waiting_.weight_of(tenant) / (weight_before * FairQueue::kTokenCost));
    weight_before += has_prompts ? waiting_.weight_of(tenant) : 0;
  }
}

/// Leaves rows to `n_most` of a tenant's decodes, at least to one.
void Scheduler::hold_back(PlanSketch& sketch, std::vector<Sequence*>& decodes, std::int64_t n_most) const {
  const auto n_kept = static_cast<std::size_t>(std::max<std::int64_t>(1, n_most));
  if (decodes.size() <= n_kept) return;
  std::ranges::stable_sort(decodes, std::greater(), [](const Sequence* of) { return of->schedule->n_held_back; });
  sketch.is_held_back.resize(of_slot_.size());
  for (std::size_t i = 0; i < decodes.size(); ++i) {
    SequenceSchedule& schedule = decodes[i]->schedule.write();
    schedule.n_held_back = i < n_kept ? 0 : schedule.n_held_back + 1;
    sketch.is_held_back[static_cast<std::size_t>(schedule.slot.value)] = i >= n_kept;
  }
}

/// Prefill rows of the step for each tenant that has prompts to compute: the one with the earliest virtual time may take
/// as many as its prompts have, the next one as many of the rest, and so on; each has one at least, so that rows that
/// nobody takes can be added to its prompt (top_up). Lists the running prompts in this order.
void Scheduler::share_out(PlanSketch& sketch) const {
  std::map<std::int32_t, std::int32_t> wanted;
  const auto want = [&](const Sequence& sequence, std::int32_t n_rows) {
    std::int32_t& n_wanted = wanted[sequence.task->tenant.id];
    n_wanted = std::min(n_wanted + n_rows, sketch.budget);
    return n_wanted < sketch.budget;
  };
  for (const std::size_t i : sketch.prefills) want(*running_order_[i], running_order_[i]->n_rows_left());
  for (const FairQueue::Turn& turn : waiting_.turns()) {
    auto at = turn.head;
    for (std::size_t n = free_slots_.size(); n > 0 && at != turn.end && want(*at->second, at->second->n_tokens()); --n) ++at;
  }
  std::vector<std::int32_t> order;
  for (const auto& [tenant, n_wanted] : wanted) order.push_back(tenant);
  std::ranges::sort(order, [this](std::int32_t a, std::int32_t b) { return waiting_.is_before(a, b); });
  std::int32_t n_left = sketch.budget;
  auto n_others = static_cast<std::int32_t>(order.size());
  for (const std::int32_t tenant : order) {
    const std::int32_t share = std::clamp(wanted[tenant], 1, std::max(1, n_left - --n_others));
    sketch.shares[tenant] = share;
    n_left -= share;
  }
  const auto tenant_of = [this](std::size_t i) { return running_order_[i]->task->tenant.id; };
  std::ranges::stable_sort(sketch.prefills, [&](std::size_t a, std::size_t b) {
    return tenant_of(a) != tenant_of(b) && waiting_.is_before(tenant_of(a), tenant_of(b));
  });
}

/// What the running sequences of each tenant hold.
std::map<std::int32_t, std::int64_t> Scheduler::held_by_tenants(Resource resource) const {
  std::map<std::int32_t, std::int64_t> held;
  for (const auto& [rank, sequence] : running_)
    held[sequence->task->tenant.id] += resource == Resource::slots ? 1 : sequence->n_tokens_bound();
  return held;
}

/// The sequence that `sequence` may take the place of: the last one, not preempted before, of the tenant that holds most
/// of the resource for its weight. Null if no other tenant holds twice as much as the sequence's tenant will hold with
/// it: smaller differences end when sequences end, without computing anything twice.
Sequence* Scheduler::victim_for(const Sequence& sequence, Resource resource) const {
  const std::int32_t own = sequence.task->tenant.id;
  std::map<std::int32_t, std::int64_t> held = held_by_tenants(resource);
  held[own] = 2 * (held[own] + (resource == Resource::slots ? 1 : sequence.n_tokens()));
  Sequence* victim = nullptr;
  for (auto at = running_.rbegin(); at != running_.rend(); ++at) {
    const std::int32_t tenant = at->second->task->tenant.id;
    if (tenant == own || at->second->schedule->n_preemptions > 0) continue;
    const std::int32_t most = victim == nullptr ? own : victim->task->tenant.id;
    const std::int64_t surplus = held[tenant] * waiting_.weight_of(most) - held[most] * waiting_.weight_of(tenant);
    if (surplus > 0 || (surplus == 0 && victim == nullptr)) victim = at->second;
  }
  return victim;
}

/// The sequence to preempt when the running ones need more blocks than there are: the last one that is not settled, of
/// the tenant that holds most tokens for its weight. Null if all are settled.
Sequence* Scheduler::next_victim() const {
  std::map<std::int32_t, std::int64_t> held;
  if (waiting_.has_several_tenants()) held = held_by_tenants(Resource::tokens);
  Sequence* victim = nullptr;
  for (auto at = running_.rbegin(); at != running_.rend(); ++at) {
    if (is_settled(*at->second)) continue;
    const std::int32_t tenant = at->second->task->tenant.id;
    if (victim == nullptr ||
        held[tenant] * waiting_.weight_of(victim->task->tenant.id) > held[victim->task->tenant.id] * waiting_.weight_of(tenant))
      victim = at->second;
    if (held.empty()) break;
  }
  return victim;
}

/// Preempts sequences of a tenant that holds more than its share until there is room for the sequence that is next, which
/// this plan then admits. Steps in flight may still use the victims' slots and blocks: they run before this one.
void Scheduler::make_way(PlanSketch& sketch) {
  std::vector<FairQueue::Turn> turns = waiting_.turns();
  const FairQueue::Turn* const turn = next_turn(sketch, turns);
  if (turn == nullptr) return;
  Sequence& next = *turn->head->second;
  const auto has_place = [this] { return !free_slots_.empty() && n_running() < options_.max_num_batched_tokens; };
  const auto has_room = [&] {
    sketch.n_claimed.clear();
    return fits_step(next) && has_blocks_for(sketch, next);
  };
  bool has_all = has_place() && has_room();
  if (is_in_flight(sketch, next)) return sketch.n_claimed.clear();
  sketch.next_admitted = turn->tenant;
  if (has_all) return sketch.n_claimed.clear();
  PendingBlocks pending{cache_.block_len(), {}, {}};
  for (const Sequence* sequence : running_order_) pending.add(*sequence);
  const bool is_deferred = waits_for_prefix(sketch, next, pending);
  while (!has_all && !is_deferred) {
    Sequence* const victim = victim_for(next, has_place() ? Resource::tokens : Resource::slots);
    if (victim == nullptr) break;
    preempt(sketch, *victim);
    has_all = has_place() && has_room();
  }
  if (!has_all) sketch.next_admitted.reset();
  sketch.n_claimed.clear();
}

/// The last running sequence, not preempted before, of the same tenant that has kMuchLonger times as much left as the
/// sequence can cost; null: none.
Sequence* Scheduler::much_longer_than(const Sequence& sequence) const {
  const std::int64_t least = kMuchLonger * FairQueue::cost_of(sequence);
  for (auto at = running_.rbegin(); at != running_.rend(); ++at) {
    Sequence* const running = at->second;
    const std::int64_t n_left = running->task->max_len - running->n_tokens_bound();
    if (running->task->tenant.id == sequence.task->tenant.id && running->schedule->n_preemptions == 0 &&
        FairQueue::kTokenCost * n_left >= least)
      return running;
  }
  return nullptr;
}

/// Gives the slot of a long sequence to a short one that is next, when no slot has become free for a while. It happens only
/// while the cache has room for both, so the long one usually finds its full blocks again and computes one block anew.
void Scheduler::make_way_for_short(PlanSketch& sketch) {
  const bool is_full = !waiting_.is_empty() && (free_slots_.empty() || n_running() >= options_.max_num_batched_tokens);
  n_full_plans_ = is_full ? n_full_plans_ + 1 : 0;
  if (n_full_plans_ < kFullPlans || sketch.plan.n_preempted > 0) return;
  std::vector<FairQueue::Turn> turns = waiting_.turns();
  const FairQueue::Turn* const turn = next_turn(sketch, turns);
  if (turn == nullptr || is_in_flight(sketch, *turn->head->second)) return;
  n_full_plans_ = 0;
  Sequence& next = *turn->head->second;
  Sequence* const victim = much_longer_than(next);
  if (victim == nullptr) return;
  PendingBlocks pending{cache_.block_len(), {}, {}};
  for (const Sequence* sequence : running_order_) pending.add(*sequence);
  const bool has_room = fits_step(next) && has_blocks_for(sketch, next);
  sketch.n_claimed.clear();
  if (!has_room || waits_for_prefix(sketch, next, pending)) return;
  const std::int64_t cost_left = FairQueue::kTokenCost * (victim->task->max_len - victim->n_tokens_bound());
  victim->schedule.write().tag = waiting_.tag_behind(next, cost_left);
  preempt(sketch, *victim);
}

}  // namespace baton
