/// Lines, virtual times and counts of tenants.
#include "engine/schedule/fair_queue.h"

#include <algorithm>
#include <bit>

#include "core/check.h"

namespace baton {
namespace {

/// The cost of a request, which computes its prompt once, in equal parts to its sequences.
std::int64_t cost_of_each(std::int32_t prompt_len, std::int32_t max_len, std::int32_t n_sequences) {
  const std::int64_t n_new = std::min(max_len - prompt_len, FairQueue::kMostTokens);
  return (prompt_len + n_sequences - 1) / n_sequences + FairQueue::kTokenCost * n_new;
}

}  // namespace

std::int64_t FairQueue::cost_of(const Sequence& sequence) {
  const SequenceTask& task = *sequence.task;
  return cost_of_each(task.prompt_len, task.max_len, task.n_siblings);
}

std::size_t FairQueue::size_of(std::int32_t prompt_len, std::int32_t max_len, std::int32_t n_sequences) {
  const auto cost = static_cast<std::uint64_t>(cost_of_each(prompt_len, max_len, n_sequences) * n_sequences);
  return std::min(kSizes, (static_cast<std::size_t>(std::bit_width(cost)) + 1) / 2) - 1;
}

FairQueue::Account& FairQueue::account_of(const Sequence& sequence) {
  const Tenant tenant = sequence.task->tenant;
  check(tenant.id >= 0 && tenant.id < kMaxTenants && tenant.weight >= 1 && tenant.weight <= kMaxTenantWeight,
        "FairQueue: a tenant's number or weight is out of range");
  const auto at = static_cast<std::size_t>(tenant.id);
  if (at >= accounts_.size()) accounts_.resize(at + 1);
  return accounts_[at];
}

std::int64_t FairQueue::tag_of(const Sequence& sequence) {
  if (!by_size_) return sequence.task->id.value;
  Account& account = account_of(sequence);
  std::int64_t& last = account.last_tags[size_of(*sequence.task)];
  return last = std::max(last, account.tag) + cost_of(sequence);
}

std::int64_t FairQueue::tag_behind(const Sequence& other, std::int64_t most_cost) const {
  const Account& account = accounts_[static_cast<std::size_t>(other.task->tenant.id)];
  const std::int64_t tag = other.schedule->tag;
  return std::max(tag, std::min(account.last_tags[size_of(*other.task)], tag + most_cost)) + 1;
}

bool FairQueue::contains(const Sequence& sequence) const {
  const auto at = static_cast<std::size_t>(sequence.task->tenant.id);
  return at < accounts_.size() && accounts_[at].line.contains(rank_of(sequence));
}

void FairQueue::add(Sequence& sequence) {
  Account& account = account_of(sequence);
  n_active_ += account.is_active() ? 0 : 1;
  account.weight = sequence.task->tenant.weight;
  if (account.line.empty()) {
    waiting_.push_back(sequence.task->tenant.id);
    account.virtual_time = std::max(account.virtual_time, virtual_time_);
  }
  account.line.emplace(rank_of(sequence), &sequence);
  if (sequence.schedule->n_preemptions == 0) account.newcomers.insert(newcomer(*sequence.task, rank_of(sequence)));
  ++n_waiting_;
}

void FairQueue::remove(const Sequence& sequence) {
  Account& account = account_of(sequence);
  if (account.line.erase(rank_of(sequence)) == 0) return;
  account.newcomers.erase(newcomer(*sequence.task, rank_of(sequence)));
  --n_waiting_;
  if (account.line.empty()) std::erase(waiting_, sequence.task->tenant.id);
  n_active_ -= account.is_active() ? 0 : 1;
}

void FairQueue::started(const Sequence& sequence) {
  Account& account = account_of(sequence);
  ++account.n_running;
  virtual_time_ = std::max(virtual_time_, account.virtual_time);
  // A sequence may be admitted before others of its line, which are then after the ones that come from now on.
  if (by_size_) account.tag = std::max(account.tag, account.line.cbegin()->first.tag);
  remove(sequence);
}

void FairQueue::stopped(const Sequence& sequence) {
  Account& account = account_of(sequence);
  --account.n_running;
  n_active_ -= account.is_active() ? 0 : 1;
}

void FairQueue::charge(const Sequence& sequence, std::int32_t n_rows, std::int32_t n_tokens) {
  Account& account = accounts_[static_cast<std::size_t>(sequence.task->tenant.id)];
  account.virtual_time += (n_rows + (kTokenCost - 1) * n_tokens) * kUnit / account.weight;
}

FairQueue::Places FairQueue::take_cohort(std::int32_t tenant, std::size_t n_most) {
  Account& account = accounts_[static_cast<std::size_t>(tenant)];
  Places cohort;
  const auto head = account.line.begin();
  const Newcomer first = newcomer(*head->second->task, head->first);
  const auto is_alike = [&](const Newcomer& of) {
    return of.first == first.first && of.second.priority == first.second.priority;
  };
  auto at = account.newcomers.find(first);
  while (at != account.newcomers.end() && is_alike(*at) && cohort.size() < n_most) {
    cohort.push_back(account.line.extract(at->second));
    at = account.newcomers.erase(at);
  }
  return cohort;
}

void FairQueue::put_back(std::int32_t tenant, Places cohort) {
  Account& account = accounts_[static_cast<std::size_t>(tenant)];
  for (Line::node_type& place : cohort)
    check(account.line.insert(std::move(place)).inserted, "FairQueue: two sequences have one place");
}

void FairQueue::check_invariants() const {
  std::size_t n_waiting = 0;
  for (const Account& account : accounts_) {
    n_waiting += account.line.size();
    for (const Newcomer& newcomer : account.newcomers)
      check(account.line.contains(newcomer.second), "FairQueue: a newcomer does not wait");
    std::set<std::pair<std::int32_t, std::size_t>> begun;  // priorities and sizes of which a newcomer was met
    for (const auto& [rank, sequence] : account.line) {
      check(rank == rank_of(*sequence), "FairQueue: a sequence stands at another place than its tag says");
      const Newcomer own = newcomer(*sequence->task, rank);
      if (account.newcomers.contains(own)) begun.emplace(rank.priority, own.first);
      check(account.newcomers.contains(own) || sequence->schedule->n_preemptions > 0 ||
                !begun.contains({rank.priority, own.first}),
            "FairQueue: a sequence of a cohort stands after one that came later");
    }
  }
  check(n_waiting == n_waiting_, "FairQueue: the waiting sequences are counted wrong");
}

std::vector<FairQueue::Turn> FairQueue::turns() const {
  std::vector<Turn> turns;
  turns.reserve(waiting_.size());
  for (const std::int32_t tenant : waiting_) {
    const Line& line = accounts_[static_cast<std::size_t>(tenant)].line;
    turns.push_back({tenant, line.cbegin(), line.cend()});
  }
  return turns;
}

/// Of equal virtual times, the tenant with fewer running sequences for its weight is first, then the lower number.
bool FairQueue::is_before(std::int32_t a, std::int32_t b) const {
  const Account& one = accounts_[static_cast<std::size_t>(a)];
  const Account& other = accounts_[static_cast<std::size_t>(b)];
  if (one.virtual_time != other.virtual_time) return one.virtual_time < other.virtual_time;
  const std::int64_t n_one = one.n_running * other.weight;
  const std::int64_t n_other = other.n_running * one.weight;
  return n_one != n_other ? n_one < n_other : a < b;
}

}  // namespace baton
