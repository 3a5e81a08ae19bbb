/// Parallel loops over the processor's threads.
///
/// Each Parallel owns a thread pool; the caller is one of its threads. A loop is divided into parts. Each thread gets
/// a range of neighbouring parts, and a thread that has finished its range takes parts that other threads have not
/// begun. A loop ends when all parts are done, even if some threads never arrived. If the system gives a thread's
/// processor to another program, the loop therefore waits for one part, not for the thread's whole range.
///
/// A Parallel runs one loop at a time. The body must not start another loop on the same Parallel. If parts throw, the loop
/// continues to its end, and then the first exception is thrown again on the caller's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace baton {

/// Threads this process may use: the smaller of its affinity mask and its cgroup's CPU quota, at least 1.
int n_available_threads();

class Parallel {
 public:
  /// `n_threads` 0 means n_available_threads().
  explicit Parallel(int n_threads);
  Parallel(Parallel&& other) noexcept;
  Parallel& operator=(Parallel&& other) noexcept;
  ~Parallel();

  int n_threads() const { return n_threads_; }

  /// Runs body(part, thread) once for each part in [0, n_parts), n_parts < 2^24, and returns when all calls have
  /// ended. `thread` is in [0, n_threads) and differs between parts that run at the same time; the caller's is 0.
  /// Neighbouring parts usually run on the same thread.
  using Body = std::function<void(std::int64_t part, int thread)>;
  void for_parts(std::int64_t n_parts, const Body& body) const;

  /// Splits [0, count) into contiguous ranges of about equal length, several for each thread, and runs body(begin,
  /// end) for each. The length of every range but the last is a multiple of `grain`. The ranges depend only on count,
  /// grain and n_threads. A single range runs on the caller.
  void for_ranges(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& body) const;

 private:
  class ThreadPool;
  int n_threads_;
  std::unique_ptr<ThreadPool> pool_;  ///< null for one thread
};

}  // namespace baton
