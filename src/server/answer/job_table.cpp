/// The slots of open jobs, and the ways of a job between them.
#include "server/answer/job_table.h"

#include "core/check.h"

namespace baton {
namespace {

constexpr std::chrono::milliseconds kRoomPoll{20};

}  // namespace

JobTable::Lock::Lock(const JobTable& table) : waited_seconds_(acquire(table.mutex_)), lock_(table.mutex_, std::adopt_lock) {
  table.waited_(waited_seconds_);
}

/// Returns the seconds that it had to wait.
double JobTable::Lock::acquire(Mutex& mutex) {
  if (mutex.try_lock()) return 0;
  const auto begin = Job::Clock::now();
  mutex.lock();
  return std::chrono::duration<double>(Job::Clock::now() - begin).count();
}

void JobTable::open(JobPtr job) {
  const ExchangeId exchange = job->exchange;
  const Lock lock(*this);
  slots_[exchange].job = std::move(job);
}

bool JobTable::is_open(ExchangeId exchange) const {
  const Lock lock(*this);
  const auto slot = slots_.find(exchange);
  return slot != slots_.end() && slot->second.client == Client::waits;
}

std::size_t JobTable::n_open() const {
  const Lock lock(*this);
  return slots_.size();
}

bool JobTable::wait_until_empty(std::chrono::milliseconds timeout) {
  const auto end = Job::Clock::now() + timeout;
  const Lock lock(*this);
  while (!slots_.empty() && emptied_.wait_until(mutex_, end)) {
  }
  return slots_.empty();
}

HeldJob JobTable::take(ExchangeId exchange) {
  const Lock lock(*this);
  const auto slot = slots_.find(exchange);
  if (slot == slots_.end()) return {};
  check(slot->second.job != nullptr, "a job is held twice");
  return {*this, std::move(slot->second.job)};
}

std::vector<HeldJob> JobTable::take_running(std::span<const ExchangeId> exchanges) {
  std::vector<HeldJob> jobs;
  jobs.reserve(exchanges.size());
  const Lock lock(*this);
  for (const ExchangeId exchange : exchanges) {
    const auto slot = slots_.find(exchange);
    const bool is_here = slot != slots_.end() && slot->second.job != nullptr;
    if (is_here && std::holds_alternative<Job::Running>(slot->second.job->state))
      jobs.emplace_back(*this, std::move(slot->second.job));
    else
      jobs.emplace_back();
  }
  return jobs;
}

JobQueue JobTable::give_back(std::span<HeldJob> jobs) noexcept {
  JobQueue ended;
  const Lock lock(*this);
  for (HeldJob& held : jobs) {
    if (!held) continue;
    JobPtr job = std::move(held.job_);
    if (std::holds_alternative<Job::Sending>(job->state)) {
      add_to_queue(std::move(job));
    } else if (std::holds_alternative<Job::Reported>(job->state)) {
      erase(slots_.find(job->exchange));
      ended.push(std::move(job));
    } else {
      rest(std::move(job));
    }
  }
  return ended;
}

HeldJob JobTable::take_queued(const Budget& unsent, std::int64_t piece_bytes) {
  const Lock lock(*this);
  while (true) {
    while (!is_stopping_ && queue_.empty()) queue_changed_.wait(mutex_);
    if (is_stopping_) return {};
    const auto slot = slots_.find(queue_.front().exchange);
    if (slot->second.client == Client::has_left) {
      leave(slot, queue_.pop());
    } else if (unsent.used() + piece_bytes <= unsent.limit() / 2) {
      return {*this, queue_.pop()};
    } else {
      // Other clients' answers take the room of answers that wait to be sent. They go, or their clients are given up.
      queue_changed_.wait_until(mutex_, Job::Clock::now() + kRoomPoll);
    }
  }
}

JobQueue JobTable::take_left() {
  const Lock lock(*this);
  return std::exchange(left_, {});
}

void JobTable::leave(Slots::iterator slot, JobPtr job) noexcept {
  left_.push(std::move(job));
  erase(slot);
  tell_left_();
}

void JobTable::erase(Slots::iterator slot) noexcept {
  slots_.erase(slot);
  if (slots_.empty()) emptied_.notify_all();
}

void JobTable::give_back(JobPtr job) noexcept {
  const Lock lock(*this);
  rest(std::move(job));
}

/// Puts a job back into its slot, unless its client has left.
void JobTable::rest(JobPtr job) noexcept {
  const auto slot = slots_.find(job->exchange);
  if (slot->second.client == Client::has_left) return leave(slot, std::move(job));
  slot->second.job = std::move(job);
}

void JobTable::queue(JobPtr job) noexcept {
  const Lock lock(*this);
  add_to_queue(std::move(job));
}

void JobTable::add_to_queue(JobPtr job) noexcept {
  queue_.push(std::move(job));
  queue_changed_.notify_all();
}

void JobTable::remove(const Job& job) noexcept {
  const Lock lock(*this);
  erase(slots_.find(job.exchange));
}

void JobTable::client_left(ExchangeId exchange) noexcept {
  const Lock lock(*this);
  const auto slot = slots_.find(exchange);
  if (slot == slots_.end()) return;
  slot->second.client = Client::has_left;
  if (slot->second.job != nullptr) leave(slot, std::move(slot->second.job));
}

void JobTable::client_reads(ExchangeId exchange) noexcept {
  const Lock lock(*this);
  const auto slot = slots_.find(exchange);
  if (slot == slots_.end() || slot->second.job == nullptr) return;
  if (!std::holds_alternative<Job::Sending>(slot->second.job->state)) return;
  add_to_queue(std::move(slot->second.job));
}

void JobTable::stop() {
  const Lock lock(*this);
  is_stopping_ = true;
  queue_changed_.notify_all();
}

bool JobTable::is_stopping() const {
  const Lock lock(*this);
  return is_stopping_;
}

}  // namespace baton
