/// Whose mask is worked at next, and for how long.
#include "engine/step/mask_jobs.h"

#include <algorithm>
#include <utility>

#include "core/attempt.h"

namespace baton {
namespace {

/// Threads that make masks, the engine's own included.
constexpr int kMostThreads = 4;
/// Of the steps in a tenant's time, so that weights divide them.
constexpr std::int64_t kUnit = kMaxTenantWeight;

}  // namespace

MaskJobs::MaskJobs(const MaskBudget& budget) : budget_(budget), threads_(std::min(kMostThreads, n_available_threads())) {}

void MaskJobs::begin_step() {
  begin_ = Clock::now();
  n_steps_kept_ = budget_.steps;
}

/// Forgets the accounts of tenants and requests that have no jobs. A new owner begins with the time of the one that has had
/// least; it is not owed what was done before.
void MaskJobs::open_accounts(std::span<const MaskJob> jobs) {
  std::map<std::int32_t, Account> kept;
  for (const MaskJob& job : jobs) {
    Account& account = kept[job.tenant.id];
    const auto before = accounts_.find(job.tenant.id);
    account.time = before != accounts_.end() ? before->second.time : -1;
    std::int64_t& steps = account.of_request[job.request.value];
    steps = -1;
    if (before == accounts_.end()) continue;
    if (const auto known = before->second.of_request.find(job.request.value); known != before->second.of_request.end())
      steps = known->second;
  }
  // Times count from that of the least, so that they stay small.
  const auto settle = [](auto& accounts, auto time_of) {
    std::int64_t least = -1;
    for (auto& entry : accounts)
      if (time_of(entry) >= 0) least = least < 0 ? time_of(entry) : std::min(least, time_of(entry));
    for (auto& entry : accounts) time_of(entry) = std::max<std::int64_t>(0, time_of(entry) - std::max<std::int64_t>(0, least));
  };
  for (auto& [tenant, account] : kept) settle(account.of_request, [](auto& entry) -> std::int64_t& { return entry.second; });
  settle(kept, [](auto& entry) -> std::int64_t& { return entry.second.time; });
  accounts_ = std::move(kept);
}

bool MaskJobs::is_before(const MaskJob& job, const MaskJob& other) const {
  const Account& account = accounts_.at(job.tenant.id);
  const Account& account_of_other = accounts_.at(other.tenant.id);
  if (job.tenant.id != other.tenant.id) return account.time < account_of_other.time;
  return account.of_request.at(job.request.value) < account_of_other.of_request.at(other.request.value);
}

/// The job whose turn it is; null: none is free, or the budget is used up.
MaskJob* MaskJobs::next(std::span<MaskJob> jobs) {
  if (n_steps_left_ <= 0 || (has_turned_ && Clock::now() >= deadline_)) return nullptr;
  MaskJob* first = nullptr;
  for (MaskJob& job : jobs) {
    if (job.is_done || std::ranges::find(busy_, job.matcher) != busy_.end()) continue;
    if (first == nullptr || is_before(job, *first)) first = &job;
  }
  return first;
}

/// One thread's part of a run.
void MaskJobs::serve(std::span<MaskJob> jobs) {
  MutexLock lock(mutex_);
  while (MaskJob* const job = next(jobs)) {
    has_turned_ = true;
    busy_.push_back(job->matcher);
    grammar::MatcherWork work{std::min(budget_.steps_of_turn, n_steps_left_)};
    const std::int64_t n_given = work.n_left;
    n_steps_left_ -= n_given;
    lock.unlock();
    bool is_done = true;
    job->lacks_memory = !attempt([&] { is_done = job->go_on(work); });
    lock.lock();
    job->is_done = is_done;
    std::erase(busy_, job->matcher);
    n_steps_left_ += work.n_left;
    const std::int64_t n_used = n_given - work.n_left;
    Account& account = accounts_.at(job->tenant.id);
    account.time += n_used * kUnit / std::max(1, job->tenant.weight);
    account.of_request.at(job->request.value) += n_used;
  }
}

void MaskJobs::begin_run(std::span<const MaskJob> jobs, Part part, std::int64_t n_saved) {
  const MutexLock lock(mutex_);
  open_accounts(jobs);
  busy_.reserve(static_cast<std::size_t>(threads_.n_threads()));
  deadline_ = begin_ + (part == Part::half ? budget_.time / 2 : budget_.time);
  n_steps_left_ = n_steps_kept_ - n_saved;
  has_turned_ = false;
}

void MaskJobs::run(std::span<MaskJob> jobs, Part part) {
  if (jobs.empty()) return;
  const std::int64_t n_saved = part == Part::half ? n_steps_kept_ / 2 : 0;
  begin_run(jobs, part, n_saved);
  const bool has_several = std::ranges::any_of(jobs, [&](const MaskJob& job) { return job.matcher != jobs.front().matcher; });
  if (has_several)
    threads_.for_parts(threads_.n_threads(), [&](std::int64_t, int) { serve(jobs); });
  else
    serve(jobs);
  const MutexLock lock(mutex_);
  n_steps_kept_ = n_saved + n_steps_left_;
}

}  // namespace baton
