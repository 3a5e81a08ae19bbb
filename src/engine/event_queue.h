/// Queues of events from the engine thread to their consumers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace baton {

/// Events in the order in which they were pushed. Thread: any.
template <class Event>
class EventQueue {
 public:
  void push(std::vector<Event> events) {
    if (events.empty()) return;
    {
      const std::scoped_lock lock(mutex_);
      if (events_.empty()) {
        events_ = std::move(events);
      } else {
        for (Event& event : events) events_.push_back(std::move(event));
      }
    }
    arrived_.notify_one();
  }
  /// Returns all queued events; waits at most `timeout` for the first one.
  std::vector<Event> wait(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, timeout, [this] { return !events_.empty(); });
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Event> events_;  ///< guarded by mutex_
};

}  // namespace baton
