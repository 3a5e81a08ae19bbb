/// Detects threads of the server that hang while they work for a client.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/limits/memory_reserve.h"
#include "core/mutex.h"

namespace baton {

/// Watches threads. A thread that works on one piece of work for longer than the timeout hangs, until that work ends. The log
/// says when a thread hangs and when it continues. Waiting for work does not count.
///
/// It also ends the program if a shutdown hangs, because a thread cannot be ended from outside.
///
/// Thread: any; `start` and `stop` belong to the owner. Lock order: `mutex_` is taken last, and nothing is logged under it.
class ThreadWatch {
 public:
  using Clock = std::chrono::steady_clock;

  /// One watched thread. It lives as long as the ThreadWatch. Thread: `begin` and `end` belong to the watched thread.
  class Place {
   public:
    explicit Place(std::string name) : name_(std::move(name)) {}
    void begin() { begun_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed); }
    void end() { begun_.store(kIdle, std::memory_order_relaxed); }

   private:
    friend class ThreadWatch;
    static constexpr Clock::rep kIdle = -1;
    const std::string name_;
    std::atomic<Clock::rep> begun_ = kIdle;
    std::optional<Clock::rep> reported_;  // the beginning of the work that the log calls hanging; places_ alone leads to it
  };
  /// A piece of work of the calling thread, to the end of the scope.
  class Work {
   public:
    explicit Work(Place& place) : place_(place) { place_.begin(); }
    ~Work() { place_.end(); }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    Place& place_;
  };

  /// 0: no thread ever hangs.
  explicit ThreadWatch(std::chrono::milliseconds timeout);
  ~ThreadWatch();

  void start();
  void stop();  ///< idempotent

  /// A place for another thread. Names need not differ.
  Place& add(std::string name);
  /// The threads that hang.
  std::vector<std::string> hanging() const;
  /// What a health check answers while threads hang; nullopt: none hangs.
  std::optional<std::string> complaint() const;

  /// The program ends after `time`, with a log line that names the threads at work, unless `shutdown_goes_on` is called first.
  void end_program_after(std::chrono::milliseconds time);
  void shutdown_goes_on();

 private:
  struct Change {
    bool is_hanging = false;
    std::string_view name;  // of a place
    double seconds = 0;
  };
  void run(MemoryReserve& reserve);
  bool hangs(Clock::rep begun, Clock::time_point now) const;
  void report();
  std::optional<Change> next_change(Clock::time_point now);
  void end_program() const;

  const std::chrono::milliseconds timeout_;
  std::thread thread_;

  mutable Mutex mutex_;
  Condition changed_;
  bool is_stopping_ BATON_GUARDED_BY(mutex_) = false;
  std::optional<Clock::time_point> end_ BATON_GUARDED_BY(mutex_);  // of the program
  std::deque<Place> places_ BATON_GUARDED_BY(mutex_);
};

}  // namespace baton
