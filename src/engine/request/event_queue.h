/// Queues of events from the engine thread to their consumers.
#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "core/mutex.h"

namespace baton {

/// Events in the order in which they were pushed. Thread: any.
template <class Event>
class EventQueue {
 public:
  void push(std::vector<Event> events) {
    if (events.empty()) return;
    {
      const MutexLock lock(mutex_);
      if (events_.empty()) {
        events_ = std::move(events);
      } else {
        for (Event& event : events) events_.push_back(std::move(event));
      }
    }
    arrived_.notify_one();
  }
  /// Ends the consumer's wait, or the next one. Needs no memory.
  void wake() {
    {
      const MutexLock lock(mutex_);
      is_woken_ = true;
    }
    arrived_.notify_one();
  }
  /// Returns all queued events; waits at most `timeout` for the first one.
  std::vector<Event> wait(std::chrono::milliseconds timeout) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    const MutexLock lock(mutex_);
    while (events_.empty() && !is_woken_ && arrived_.wait_until(mutex_, end)) {
    }
    is_woken_ = false;
    return std::exchange(events_, {});
  }

 private:
  Mutex mutex_;
  Condition arrived_;
  std::vector<Event> events_ BATON_GUARDED_BY(mutex_);
  bool is_woken_ BATON_GUARDED_BY(mutex_) = false;
};

}  // namespace baton
