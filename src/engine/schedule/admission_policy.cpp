/// The order of service: first come, first served for one tenant, and shares by weight between tenants.
#include "engine/schedule/admission_policy.h"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include "core/check.h"

namespace baton {
namespace {

using Group = std::vector<Sequence*>;

/// The next length to compare after `n_blocks`: powers of two and the middles between them.
std::size_t next_length(std::size_t n_blocks) {
  std::size_t power = 1;
  while (2 * power <= n_blocks) power *= 2;
  return n_blocks == power ? std::max(n_blocks + 1, power + power / 2) : 2 * power;
}

/// Splits sequences by their first `n_blocks` blocks. Groups are in the order of their first members; a sequence without
/// so many hashed blocks is a group of its own.
std::vector<Group> split(std::span<Sequence* const> members, std::size_t n_blocks) {
  std::vector<Group> groups;
  std::unordered_map<BlockHash, std::size_t> group_of;
  for (Sequence* const member : members) {
    const std::vector<BlockHash>& hashes = member->schedule->table.hashes;
    const bool is_short = hashes.size() < n_blocks;
    const std::size_t group =
        is_short ? groups.size() : group_of.try_emplace(hashes[n_blocks - 1], groups.size()).first->second;
    if (group == groups.size()) groups.emplace_back();
    groups[group].push_back(member);
  }
  return groups;
}

void gather(std::span<Sequence*> members, std::size_t n_blocks, const RunningBlocks& running) {
  if (members.size() < 2 || n_blocks > static_cast<std::size_t>(kMostSharedBlocks)) return;
  std::vector<Group> groups = split(members, n_blocks);
  if (groups.size() > 1)
    std::ranges::stable_partition(groups, [&](const Group& group) {
      const std::vector<BlockHash>& hashes = group.front()->schedule->table.hashes;
      return hashes.size() >= n_blocks && running.contains(hashes[n_blocks - 1]);
    });
  auto place = members.begin();
  for (const Group& group : groups) {
    const std::span<Sequence*> its(place, group.size());
    place = std::ranges::copy(group, place).out;
    gather(its, next_length(n_blocks), running);
  }
}

}  // namespace

void gather_sharers(std::vector<Sequence*>& sequences, const RunningBlocks& running) { gather(sequences, 1, running); }

void AdmissionPolicy::started(Sequence& sequence) {
  waiting_.started(sequence);
  running_.emplace(rank_of(sequence), &sequence);
  is_order_stale_ = true;
}

void AdmissionPolicy::stopped(const Sequence& sequence) {
  running_.erase(rank_of(sequence));
  waiting_.stopped(sequence);
  is_order_stale_ = true;
}

void AdmissionPolicy::begin_plan() {
  if (std::exchange(is_order_stale_, false)) {
    order_.clear();
    for (const auto& [rank, sequence] : running_) order_.push_back(sequence);
  }
  n_short_plans_ = waiting_.has_several_tenants() ? kShortPlans : std::max(0, n_short_plans_ - 1);
}

std::int32_t AdmissionPolicy::Limits::n_open_to(std::int32_t tenant, std::int32_t budget) const {
  const auto share = shares.find(tenant);
  return share == shares.end() ? budget : std::min(budget, share->second);
}

void AdmissionPolicy::Limits::take(std::int32_t tenant, std::int32_t n_rows) {
  if (const auto share = shares.find(tenant); share != shares.end()) share->second -= n_rows;
}

FairQueue::Turn* AdmissionPolicy::next(std::vector<FairQueue::Turn>& turns, Limits& limits, std::int32_t budget) const {
  FairQueue::Turn* next = nullptr;
  for (FairQueue::Turn& turn : turns) {
    if (turn.head == turn.end || limits.n_open_to(turn.tenant, budget) <= 0) continue;
    if (turn.tenant == limits.next_admitted) return &turn;
    if (next == nullptr || waiting_.is_before(turn.tenant, next->tenant)) next = &turn;
  }
  if (next != nullptr || budget == 0 || limits.shares.empty()) return next;
  limits.shares.clear();
  return this->next(turns, limits, budget);
}

std::int32_t AdmissionPolicy::prefill_limit(std::int32_t budget, bool has_decodes) const {
  const bool is_short = (has_decodes || n_short_plans_ > 0) && max_prefill_tokens_ > 0;
  return is_short ? std::min(budget, max_prefill_tokens_) : budget;
}

/// What the running sequences of each tenant hold.
std::map<std::int32_t, std::int64_t> AdmissionPolicy::held_by_tenants(Resource resource) const {
  std::map<std::int32_t, std::int64_t> held;
  for (const auto& [rank, sequence] : running_)
    held[sequence->task->tenant.id] += resource == Resource::slots ? 1 : sequence->n_tokens_bound();
  return held;
}

Sequence* AdmissionPolicy::victim() const {
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

Sequence* AdmissionPolicy::victim_for(const Sequence& next, Resource resource) const {
  const std::int32_t own = next.task->tenant.id;
  std::map<std::int32_t, std::int64_t> held = held_by_tenants(resource);
  held[own] = 2 * (held[own] + (resource == Resource::slots ? 1 : next.n_tokens()));
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

Sequence* AdmissionPolicy::victim_for_short(const Sequence& next) const {
  const std::int64_t least = kMuchLonger * FairQueue::cost_of(next);
  for (auto at = running_.rbegin(); at != running_.rend(); ++at) {
    Sequence* const running = at->second;
    const std::int64_t n_left = running->task->max_len - running->n_tokens_bound();
    if (running->task->tenant.id == next.task->tenant.id && running->schedule->n_preemptions == 0 &&
        FairQueue::kTokenCost * n_left >= least)
      return running;
  }
  return nullptr;
}

AdmissionPolicy::Decodes AdmissionPolicy::limit_decodes(const Limits& limits, std::int32_t budget) const {
  const auto n_rows_left = [](const Sequence& sequence) {
    return sequence.schedule->state == SequenceState::running ? sequence.n_rows_left() : 0;
  };
  Decodes chosen;
  std::map<std::int32_t, bool> tenants;  // whether they have prompts
  if (limits.next_admitted) tenants[*limits.next_admitted] = true;
  for (const Sequence* const sequence : order_)
    if (n_rows_left(*sequence) > 1) tenants[sequence->task->tenant.id] = true;
  if (tenants.empty()) return chosen;
  std::map<std::int32_t, std::vector<Sequence*>> decodes;
  for (Sequence* const sequence : order_)
    if (n_rows_left(*sequence) == 1) decodes[sequence->task->tenant.id].push_back(sequence);
  for (const auto& [tenant, its] : decodes) tenants.emplace(tenant, false);
  std::vector<std::pair<std::int32_t, bool>> order(tenants.begin(), tenants.end());
  std::ranges::sort(order, [this](const auto& a, const auto& b) { return waiting_.is_before(a.first, b.first); });
  const std::int32_t n_prompt_rows = max_prefill_tokens_ > 0 ? std::min(max_prefill_tokens_, budget) : budget;
  std::int64_t weight_before = 0;  // of tenants with prompts
  for (const auto& [tenant, has_prompts] : order) {
    if (weight_before > 0)
      limit(decodes[tenant], n_prompt_rows * waiting_.weight_of(tenant) / (weight_before * FairQueue::kTokenCost), chosen);
    weight_before += has_prompts ? waiting_.weight_of(tenant) : 0;
  }
  return chosen;
}

/// Leaves rows to `n_most` of a tenant's decodes, at least to one.
void AdmissionPolicy::limit(std::vector<Sequence*>& decodes, std::int64_t n_most, Decodes& chosen) const {
  const auto n_kept = static_cast<std::size_t>(std::max<std::int64_t>(1, n_most));
  if (decodes.size() <= n_kept) return;
  std::ranges::stable_sort(decodes, std::greater(), [](const Sequence* of) { return of->schedule->n_held_back; });
  for (std::size_t i = 0; i < decodes.size(); ++i) (i < n_kept ? chosen.kept : chosen.held_back).push_back(decodes[i]);
}

std::map<std::int32_t, std::int32_t> AdmissionPolicy::shares(std::span<const std::size_t> prefills, std::int32_t budget,
                                                             std::size_t n_free_slots) const {
  std::map<std::int32_t, std::int32_t> wanted;
  const auto want = [&](const Sequence& sequence, std::int32_t n_rows) {
    std::int32_t& n_wanted = wanted[sequence.task->tenant.id];
    n_wanted = std::min(n_wanted + n_rows, budget);
    return n_wanted < budget;
  };
  for (const std::size_t i : prefills) want(*order_[i], order_[i]->n_rows_left());
  for (const FairQueue::Turn& turn : waiting_.turns()) {
    auto at = turn.head;
    for (std::size_t n = n_free_slots; n > 0 && at != turn.end && want(*at->second, at->second->n_tokens()); --n) ++at;
  }
  std::vector<std::int32_t> order;
  for (const auto& [tenant, n_wanted] : wanted) order.push_back(tenant);
  std::ranges::sort(order, [this](std::int32_t a, std::int32_t b) { return waiting_.is_before(a, b); });
  std::map<std::int32_t, std::int32_t> shares;
  std::int32_t n_left = budget;
  auto n_others = static_cast<std::int32_t>(order.size());
  for (const std::int32_t tenant : order) {
    const std::int32_t share = std::clamp(wanted[tenant], 1, std::max(1, n_left - --n_others));
    shares[tenant] = share;
    n_left -= share;
  }
  return shares;
}

void AdmissionPolicy::check_invariants() const {
  check(is_order_stale_ || std::ranges::equal(running_, order_, {}, [](const auto& entry) { return entry.second; }),
        "AdmissionPolicy: the order of the running sequences is stale");
  waiting_.check_invariants();
}

}  // namespace baton
