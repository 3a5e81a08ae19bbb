/// Parallel loops over the processor's threads: the only user of OpenMP.
///
/// Opened by the engine thread only (one loop at a time per Parallel); the body must not throw and must not open another loop.
#pragma once

#include <cstdint>
#include <functional>

namespace baton {

/// Threads this process may use: the smaller of its affinity mask and its cgroup's CPU quota, at least 1.
int n_available_threads();

class Parallel {
 public:
  /// `n_threads` 0 means n_available_threads().
  explicit Parallel(int n_threads);

  int n_threads() const { return n_threads_; }

  /// Makes libraries that use OpenMP (oneDNN) run on as many threads when they are called from the calling thread.
  void bind_libraries() const;

  /// Runs body(thread) once for each thread in [0, n_threads), and returns when all have ended.
  void for_each_thread(const std::function<void(int thread)>& body) const;

  /// Splits [0, count) into one contiguous range a thread, each a multiple of `grain` but the last, and runs body(begin, end).
  /// Ranges depend on count, grain and n_threads alone. Runs on the caller where one range is enough.
  void for_ranges(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& body) const;

 private:
  int n_threads_;
};

}  // namespace baton
