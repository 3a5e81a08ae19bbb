/// Runs text work (parsing, templates, tokenizers) on two threads, so that short work never waits behind long work.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "server/budget.h"

namespace baton {

/// One thread does short work alone; the other does long work, and short work when there is no long one. What is queued is
/// bounded by a budget, of which long work takes more.
///
/// Thread: any for `push`; `stop` and destruction belong to the owner.
class TextQueue {
 public:
  /// Work on more text than this is long.
  static constexpr std::size_t kLongBytes = 64 << 10;

  /// `places` must outlive it.
  explicit TextQueue(Budget& places);
  ~TextQueue() { stop(); }

  /// Queues work on about `n_bytes` of text. False if there is no place; it does not run then. `dropped` runs in its place
  /// if the queue stops first.
  bool push(std::size_t n_bytes, std::function<void()> work, std::function<void()> dropped = {});
  /// Drops what has not begun, and waits for what has. Idempotent.
  void stop();
  /// Whether `stop` was called: work that is running ends early then.
  bool is_stopping() const;

 private:
  struct Job {
    std::function<void()> work;
    std::function<void()> dropped;
    BudgetShare place;
  };
  void run(bool does_long_work);

  Budget& places_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by the mutex.
  std::deque<Job> short_;
  std::deque<Job> long_;
  bool is_stopping_ = false;

  std::thread short_thread_;
  std::thread long_thread_;
};

}  // namespace baton
