/// The threads of text work.
#include "server/limits/text_queue.h"

#include <algorithm>
#include <system_error>

#include "core/attempt.h"
#include "core/check.h"
#include "core/limits/insist.h"
#include "core/limits/thread_body.h"
#include "core/log.h"

namespace baton {
namespace {

// Places that long work takes; with more than a short one's it cannot take the places kept for short work.
constexpr std::int64_t kLongPlaces = 16;
/// For what must not fail when memory is short: destructors of JSON values, refusals.
constexpr std::size_t kTextReserveBytes = std::size_t{1} << 20;
constexpr int kMaxShortThreads = 8;
constexpr std::string_view kNoTextRefusal =
    "event=answers_out_of_memory effect=\"the program ends: there is no memory to refuse a request\"";

/// Tells the sender of work that it is not done. Not on the I/O thread.
void refuse_text(const TenantLines::Job& job, std::string_view why) {
  if (job.refuse) insist(kNoTextRefusal, [&] { job.refuse(why); });
}

/// An estimate in microseconds: 50 for a request of a few words, and 0.1 for parsing, rendering and encoding a byte.
std::int64_t cost_of(std::size_t n_bytes) { return 50 + static_cast<std::int64_t>(n_bytes / 10); }

}  // namespace

void TenantLines::push(Job job) {
  const Tenant tenant = job.tenant;
  check(tenant.weight >= 1 && tenant.weight <= kMaxTenantWeight, "TenantLines: a tenant's weight is out of range");
  std::list<Job> added;
  added.push_back(std::move(job));
  Account& account = accounts_[tenant.id];
  if (account.line.empty()) {
    account.virtual_time = std::max(account.virtual_time, virtual_time_);
    waiting_.emplace(account.virtual_time + time_of(added.front().cost, tenant.weight), tenant.id);
  }
  account.line.splice(account.line.end(), added);
  ++n_jobs_;
}

TenantLines::Job TenantLines::pop() {
  check(!waiting_.empty(), "TenantLines: no job waits");
  auto turn = waiting_.extract(waiting_.begin());
  Account& account = accounts_.at(turn.value().second);
  virtual_time_ = std::max(virtual_time_, account.virtual_time);
  Job job = std::move(account.line.front());
  account.line.pop_front();
  --n_jobs_;
  account.virtual_time += time_of(job.cost, job.tenant.weight);
  if (account.line.empty()) return job;
  turn.value() = turn_of(account, job.tenant.id);
  waiting_.insert(std::move(turn));
  return job;
}

void TenantLines::correct(const Tenant& tenant, std::int64_t more) {
  Account& account = accounts_.at(tenant.id);
  auto turn = account.line.empty() ? decltype(waiting_)::node_type() : waiting_.extract(turn_of(account, tenant.id));
  account.virtual_time += time_of(more, tenant.weight);
  if (turn.empty()) return;
  turn.value() = turn_of(account, tenant.id);
  waiting_.insert(std::move(turn));
}

std::list<TenantLines::Job> TenantLines::take_all() {
  std::list<Job> all;
  for (auto& [id, account] : accounts_) all.splice(all.end(), account.line);
  waiting_.clear();
  n_jobs_ = 0;
  return all;
}

int TextQueue::n_short_threads_for(int n_cores) { return std::clamp(n_cores / 2, 1, kMaxShortThreads); }

TextQueue::TextQueue(Budget& places, ThreadWatch& watch, int n_short_threads, ThreadTime thread_time)
    : places_(places), watch_(watch), thread_time_(std::move(thread_time)) {
  start_thread(Role::brief, "text-short");
  start_thread(Role::lengthy, "text-long");
  start_thread(Role::pages, "pages");
  try {
    for (int i = 1; i < n_short_threads; ++i) start_thread(Role::brief, "text-short");
  } catch (const std::system_error&) {
    log::warning("event=threads_missing wanted={} effect=\"short requests have fewer threads\"", n_short_threads);
  }
}

void TextQueue::start_thread(Role role, const char* name) {
  threads_.reserve(threads_.size() + 1);
  threads_.emplace_back(thread_body(
      name, kTextReserveBytes, [this, role, &place = watch_.add(name)](MemoryReserve& reserve) { run(role, place, reserve); }));
}

/// Whether the places suffice for other tenants too, if this one takes so many. A server without keys has one tenant.
bool TextQueue::has_place_for(const Tenant& tenant, std::int64_t n_places) const {
  if (tenant.id == 0) return true;
  const auto found = places_of_.find(tenant.id);
  const std::int64_t n_own = found == places_of_.end() ? 0 : found->second;
  return n_own + n_places <= std::max<std::int64_t>(1, 3 * (places_.limit() - places_.used()));
}

bool TextQueue::push(Work work) {
  const bool is_page = work.kind == Kind::page;
  const bool is_long = !is_page && work.n_bytes > kLongBytes;
  Job job{work.tenant, cost_of(work.n_bytes), std::move(work.run), std::move(work.refuse), places_.share()};
  if (!job.place.grow(is_long ? kLongPlaces : 1)) return false;
  {
    const MutexLock lock(mutex_);
    if (!is_stopping_) {
      const std::int64_t n_places = job.place.size();
      if (!has_place_for(work.tenant, n_places)) {
        places_.count_refusal();
        return false;
      }
      std::int64_t& n_of_tenant = places_of_[work.tenant.id];
      TenantLines& line = is_page ? pages_ : is_long ? long_ : short_;
      line.push(std::move(job));
      n_of_tenant += n_places;
      wake_one(line);
      return true;
    }
  }
  if (job.refuse) job.refuse(kStopping);
  return true;
}

/// Wakes a thread for what was added to a line.
void TextQueue::wake_one(const TenantLines& line) {
  if (&line == &pages_) return page_came_.notify_one();
  if (&line == &long_) return long_came_.notify_one();
  short_came_.notify_one();
  if (line.size() > static_cast<std::size_t>(n_idle_)) long_came_.notify_one();
}

void TextQueue::stop() {
  std::list<Job> dropped;
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
    for (TenantLines* line : {&short_, &long_, &pages_}) dropped.splice(dropped.end(), line->take_all());
    places_of_.clear();
  }
  for (Condition* came : {&short_came_, &long_came_, &page_came_}) came->notify_all();
  for (const Job& job : dropped) refuse_text(job, kStopping);
  dropped.clear();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

/// The line from which a thread takes its next job; null: none waits.
TenantLines* TextQueue::next_line(Role role) {
  if (role == Role::pages) return pages_.is_empty() ? nullptr : &pages_;
  if (role == Role::lengthy && !long_.is_empty()) return &long_;
  return short_.is_empty() ? nullptr : &short_;
}

/// A job waits no longer.
void TextQueue::begin(Job& job) {
  const auto found = places_of_.find(job.tenant.id);
  found->second -= job.place.size();
  if (found->second == 0) places_of_.erase(found);
  job.place.release();
}

void TextQueue::run(Role role, ThreadWatch::Place& place, MemoryReserve& reserve) {
  Condition& came = role == Role::brief ? short_came_ : role == Role::lengthy ? long_came_ : page_came_;
  const int n_of_pool = role == Role::brief ? 1 : 0;
  MutexLock lock(mutex_);
  while (true) {
    n_idle_ += n_of_pool;
    while (!is_stopping_ && next_line(role) == nullptr) came.wait(mutex_);
    n_idle_ -= n_of_pool;
    if (is_stopping_) return;
    TenantLines& line = *next_line(role);
    Job job = line.pop();
    begin(job);
    lock.unlock();
    const auto begun = thread_time_();
    {
      const ThreadWatch::Work work(place);
      reserve.restore();
      if (!attempt(job.work)) {
        log::warning("event=out_of_memory effect=\"a request is refused\"");
        refuse_text(job, kNoMemory);
      }
      job.work = {};
      job.refuse = {};
    }
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(thread_time_() - begun);
    lock.lock();
    line.correct(job.tenant, std::max<std::int64_t>(1, took.count()) - job.cost);
  }
}

}  // namespace baton
