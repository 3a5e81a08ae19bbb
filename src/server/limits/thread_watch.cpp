/// Places of threads, and the thread that checks the time.
#include "server/limits/thread_watch.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/check.h"
#include "core/limits/thread_body.h"
#include "core/log.h"

namespace baton {
namespace {

using Clock = ThreadWatch::Clock;

/// For the line of the log that says why the program ends.
constexpr std::size_t kWatchReserveBytes = std::size_t{256} << 10;

double seconds_since(Clock::rep begun, Clock::time_point now) {
  return std::chrono::duration<double>(now - Clock::time_point(Clock::duration(begun))).count();
}

}  // namespace

ThreadWatch::ThreadWatch(std::chrono::milliseconds timeout) : timeout_(timeout) {
  baton::check(timeout.count() >= 0, "ThreadWatch: a negative timeout");
}
ThreadWatch::~ThreadWatch() { stop(); }

void ThreadWatch::start() {
  baton::check(!thread_.joinable(), "a ThreadWatch is started once");
  thread_ = std::thread(thread_body("thread-watch", kWatchReserveBytes, [this](MemoryReserve& reserve) { run(reserve); }));
}

void ThreadWatch::stop() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

ThreadWatch::Place& ThreadWatch::add(std::string name) {
  const MutexLock lock(mutex_);
  return places_.emplace_back(std::move(name));
}

bool ThreadWatch::hangs(Clock::rep begun, Clock::time_point now) const {
  return timeout_.count() > 0 && begun != Place::kIdle && now - Clock::time_point(Clock::duration(begun)) >= timeout_;
}

std::vector<std::string> ThreadWatch::hanging() const {
  const auto now = Clock::now();
  std::vector<std::string> names;
  const MutexLock lock(mutex_);
  for (const Place& place : places_)
    if (hangs(place.begun_.load(std::memory_order_relaxed), now)) names.push_back(place.name_);
  return names;
}

std::optional<std::string> ThreadWatch::complaint() const {
  const std::vector<std::string> names = hanging();
  if (names.empty()) return std::nullopt;
  return fmt::format("threads of this server hang: {}; each has worked for over {} s (--step-timeout) on one piece of work",
                     fmt::join(names, ", "), static_cast<double>(timeout_.count()) / 1000);
}

void ThreadWatch::end_program_after(std::chrono::milliseconds time) {
  {
    const MutexLock lock(mutex_);
    end_ = Clock::now() + time;
  }
  changed_.notify_all();
}

void ThreadWatch::shutdown_goes_on() {
  const MutexLock lock(mutex_);
  end_.reset();
}

/// A thread that has begun to hang, or one that hung and continues, which the log does not say yet; nullopt: there is none.
std::optional<ThreadWatch::Change> ThreadWatch::next_change(Clock::time_point now) {
  const MutexLock lock(mutex_);
  for (Place& place : places_) {
    const Clock::rep begun = place.begun_.load(std::memory_order_relaxed);
    if (place.reported_ && *place.reported_ != begun)
      return Change{false, place.name_, seconds_since(*std::exchange(place.reported_, std::nullopt), now)};
    if (place.reported_ || !hangs(begun, now)) continue;
    place.reported_ = begun;
    return Change{true, place.name_, seconds_since(begun, now)};
  }
  return std::nullopt;
}

/// Tells the log which threads hang and which continue. Without the lock: the reader of the log may be slow.
void ThreadWatch::report() {
  const auto now = Clock::now();
  while (const auto change = next_change(now)) {
    if (change->is_hanging)
      log::error("event=thread_hangs thread={} work_seconds={:.1f} effect=\"/health and /livez answer 503\"", change->name,
                 change->seconds);
    else
      log::warning("event=thread_goes_on thread={} work_seconds={:.1f}", change->name, change->seconds);
  }
}

void ThreadWatch::end_program() const {
  const auto now = Clock::now();
  std::string busy;
  {
    const MutexLock lock(mutex_);
    for (const Place& place : places_) {
      const Clock::rep begun = place.begun_.load(std::memory_order_relaxed);
      if (begun != Place::kIdle)
        busy += fmt::format("{}{}:{:.1f}s", busy.empty() ? "" : ",", place.name_, seconds_since(begun, now));
    }
  }
  log::fatal(fmt::format("event=shutdown_hangs effect=\"the program ends without waiting for its threads\" threads={}",
                         busy.empty() ? "-" : busy));
}

void ThreadWatch::run(MemoryReserve& reserve) {
  constexpr std::chrono::milliseconds kLongest{1000};
  const auto interval = timeout_.count() == 0 ? kLongest : std::clamp(timeout_ / 4, std::chrono::milliseconds(1), kLongest);
  MutexLock lock(mutex_);
  while (!is_stopping_) {
    auto until = Clock::now() + interval;
    if (end_) until = std::min(until, *end_);
    changed_.wait_until(mutex_, until);
    const bool is_over = !is_stopping_ && end_ && Clock::now() >= *end_;
    lock.unlock();
    reserve.restore();
    if (is_over) end_program();
    report();
    lock.lock();
  }
}

}  // namespace baton
