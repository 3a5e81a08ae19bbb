/// Parallel loops over the processor's threads.
///
/// Each Parallel has a thread pool of threads of its own, the caller among them. The parts of a loop are dealt out as neighbouring
/// ranges, one a thread; who has finished his range takes what others have not begun. A loop ends when its parts are done, not
/// when its threads have arrived: a thread whose processor the system has given to another program holds up the one part that
/// it is in.
///
/// One loop at a time for each Parallel; the body must not throw and must not open another loop of the same thread pool.
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

  /// Runs body(part, thread) once for each part in [0, n_parts), n_parts < 2^24, and returns when all have ended. Parts that
  /// run at the same time have different threads in [0, n_threads), the caller's is 0; neighbouring parts tend to have the
  /// same.
  using Body = std::function<void(std::int64_t part, int thread)>;
  void for_parts(std::int64_t n_parts, const Body& body) const;

  /// Splits [0, count) into contiguous ranges of about the same length, some for each thread, each a multiple of `grain` but
  /// the last, and runs body(begin, end). Ranges depend on count, grain and n_threads alone. Runs on the caller where one range
  /// is enough.
  void for_ranges(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& body) const;

 private:
  class ThreadPool;
  int n_threads_;
  std::unique_ptr<ThreadPool> pool_;  ///< null for one thread
};

}  // namespace baton
