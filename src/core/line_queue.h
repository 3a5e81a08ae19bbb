/// Lines on their way to a file, which are written at once or by a thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "core/mutex.h"

namespace baton::log {

/// Lines for a file descriptor, in the order in which they came. Without a thread, `write` writes. With one, `write`
/// queues at most kMaxQueuedBytes, drops what is beyond and counts it, and never waits for the reader.
///
/// A line that cannot be written (the reader is gone, the disk is full) is dropped and counted too. Thread: any,
/// except begin and end.
class LineQueue : public std::enable_shared_from_this<LineQueue> {
 public:
  static constexpr std::size_t kMaxQueuedBytes = std::size_t{1} << 20;

  explicit LineQueue(int file) : file_(file) {}

  /// Takes lines, or a part of one.
  void write(std::string_view lines);
  void count_dropped() { add_dropped(1); }
  std::int64_t n_dropped() const;

  /// Starts the thread. `on_dropped` is called by it, without a lock, after it has written again and lines had been
  /// dropped, with their number.
  void begin(void (*on_dropped)(std::int64_t n_lines));
  /// Waits at most `patience` for the queue to be written.
  void flush(std::chrono::milliseconds patience);
  /// Waits at most `patience` for the queue to be written, and ends the thread. If the reader did not take everything,
  /// nothing waits for it any more: `write` then drops what it cannot write at once.
  void end(std::chrono::milliseconds patience);

 private:
  using Clock = std::chrono::steady_clock;

  void run(void (*on_dropped)(std::int64_t n_lines), std::int64_t n_told);
  bool write_some(std::string_view& bytes);
  void add_dropped(std::int64_t n_lines);

  const int file_;
  std::thread thread_;  // of the caller of begin and end

  mutable Mutex mutex_;
  Condition changed_;
  std::string queued_ BATON_GUARDED_BY(mutex_);
  std::int64_t n_dropped_ BATON_GUARDED_BY(mutex_) = 0;
  bool has_thread_ BATON_GUARDED_BY(mutex_) = false;
  bool is_writing_ BATON_GUARDED_BY(mutex_) = false;          // the thread has taken lines out of the queue
  bool is_ended_ BATON_GUARDED_BY(mutex_) = false;            // the thread has left its loop
  bool has_stalled_reader_ BATON_GUARDED_BY(mutex_) = false;  // the last thread could not write everything
  Clock::time_point deadline_ BATON_GUARDED_BY(mutex_) = Clock::time_point::max();  // when the thread must have ended
};

}  // namespace baton::log
