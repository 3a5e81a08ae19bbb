/// The thread pool: how it distributes the parts of a loop, and how its threads wait for the next loop.
#include "core/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/log.h"
#include "core/thread_name.h"

namespace baton {
namespace {

int n_affinity_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

/// The quota of control group version 2 (cpu.max: "max 100000" or "200000 100000") or version 1, rounded up; 0 for
/// none.
int n_quota_threads() {
  double quota = -1;
  double period = 0;
  if (std::ifstream file("/sys/fs/cgroup/cpu.max"); file) {
    std::string first;
    file >> first >> period;
    if (first != "max" && !first.empty()) quota = std::strtod(first.c_str(), nullptr);
  } else {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  if (quota <= 0 || period <= 0) return 0;
  return std::max(1, static_cast<int>(std::ceil(quota / period)));
}

/// A waiting thread pauses this often, for about 50 us, before it sleeps. The loops of a step follow one another
/// faster than that. Between steps a spinning thread would only take processor time from the server's threads.
constexpr int kPausesBeforeSleep = 3000;
/// Ranges for each thread in for_ranges. More ranges shorten the wait at the end of a loop; each range costs a little
/// time.
constexpr std::int64_t kRangesPerThread = 4;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// Waits until `value` differs from `old` and returns the new value.
std::uint32_t wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int i = 0; i < kPausesBeforeSleep; ++i) {
    if (const std::uint32_t now = value.load(std::memory_order_acquire); now != old) return now;
    pause();
  }
  value.wait(old);
  return value.load(std::memory_order_acquire);
}

}  // namespace

int n_available_threads() {
  const int quota = n_quota_threads();
  const int affinity = n_affinity_threads();
  return quota > 0 ? std::min(quota, affinity) : affinity;
}

/// Loops are numbered. Each thread's range has one word {number of the loop, next part}. A word with an older loop
/// number means that no thread has begun the range in the current loop. Starting a loop therefore writes only its body
/// and its number.
///
/// A thread that arrives late reads body and number twice to be sure that they belong together. It then takes a part
/// by compare-and-swap. Success proves that the loop still has an unfinished part, so its body is still alive.
class Parallel::ThreadPool {
 public:
  explicit ThreadPool(int n_threads) : claims_(static_cast<std::size_t>(n_threads)) {
    threads_.reserve(claims_.size());
    try {
      for (int thread = 1; thread < n_threads; ++thread) threads_.emplace_back([this, thread] { serve(thread); });
    } catch (const std::system_error& error) {  // the others take the parts of a thread that is not there
      log::warning("event=threads_missing wanted={} started={} reason=\"{}\"", n_threads, threads_.size() + 1, error.what());
    }
  }
  ~ThreadPool() {
    ends_.store(true, std::memory_order_relaxed);
    ring();
    for (std::thread& thread : threads_) thread.join();
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void run(std::int64_t n_parts, const Body& body) {
    check(n_parts < std::int64_t{1} << kPartBits, "Parallel: too many parts");
    ++n_loops_;
    body_.store(&body, std::memory_order_release);
    n_parts_.store(n_parts, std::memory_order_release);
    n_done_.store(0, std::memory_order_relaxed);
    loop_.store(n_loops_, std::memory_order_release);
    ring();
    take_parts(0, n_loops_);
    const auto all = static_cast<std::uint32_t>(n_parts);
    for (std::uint32_t done = n_done_.load(std::memory_order_acquire); done != all;) done = wait_for_change(n_done_, done);
    loop_.store(0, std::memory_order_relaxed);
    if (!has_failed_.load(std::memory_order_relaxed)) return;
    has_failed_.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  static constexpr int kPartBits = 24;
  struct alignas(64) Claim {
    std::atomic<std::uint64_t> word{0};
  };

  void ring() {
    bell_.fetch_add(1);
    bell_.notify_all();
  }

  void serve(int thread) {
    name_this_thread("engine pool");
    for (std::uint32_t heard = 0;;) {
      heard = wait_for_change(bell_, heard);
      if (ends_.load(std::memory_order_relaxed)) return;
      if (const std::uint64_t loop = loop_.load(std::memory_order_acquire); loop != 0) take_parts(thread, loop);
    }
  }

  /// Runs parts of the loop until all have been begun: first those of the thread's own range, then those of other
  /// threads.
  void take_parts(int thread, std::uint64_t loop) {
    const Body* body = body_.load(std::memory_order_acquire);
    const std::int64_t n_parts = n_parts_.load(std::memory_order_acquire);
    if (loop_.load(std::memory_order_acquire) != loop) return;
    const std::size_t n_threads = claims_.size();
    std::uint32_t n_done = 0;
    for (std::size_t i = 0; i < n_threads; ++i) {
      const std::size_t owner = (static_cast<std::size_t>(thread) + i) % n_threads;
      for (std::int64_t part = claim(owner, loop, n_parts); part >= 0; part = claim(owner, loop, n_parts)) {
        try {
          (*body)(part, thread);
        } catch (...) {  // it may be that memory ran out
          if (!has_failed_.exchange(true, std::memory_order_relaxed)) failure_ = std::current_exception();
        }
        ++n_done;
      }
    }
    if (n_done == 0) return;
    if (n_done_.fetch_add(n_done) + n_done == static_cast<std::uint32_t>(n_parts)) n_done_.notify_one();
  }

  /// Takes the next part of the owner's range. -1: all its parts have been begun, or the loop is no longer the current
  /// one.
  std::int64_t claim(std::size_t owner, std::uint64_t loop, std::int64_t n_parts) {
    const auto n_threads = static_cast<std::int64_t>(claims_.size());
    const auto index = static_cast<std::int64_t>(owner);
    const auto begin = static_cast<std::uint64_t>(n_parts * index / n_threads);
    const auto end = static_cast<std::uint64_t>(n_parts * (index + 1) / n_threads);
    std::atomic<std::uint64_t>& word = claims_[owner].word;
    std::uint64_t now = word.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint64_t of = now >> kPartBits;
      const std::uint64_t next = of == loop ? now & ((std::uint64_t{1} << kPartBits) - 1) : begin;
      if (of > loop || next >= end) return -1;
      if (word.compare_exchange_weak(now, (loop << kPartBits) | (next + 1), std::memory_order_acq_rel,
                                     std::memory_order_relaxed))
        return static_cast<std::int64_t>(next);
    }
  }

  std::vector<Claim> claims_;           ///< one for each range, by the thread that owns the range
  std::uint64_t n_loops_ = 0;           ///< used by the caller only
  std::atomic<std::uint64_t> loop_{0};  ///< number of the running loop; 0: no loop runs, body and n_parts may change
  std::atomic<const Body*> body_{nullptr};
  std::atomic<std::int64_t> n_parts_{0};
  alignas(64) std::atomic<std::uint32_t> n_done_{0};
  alignas(64) std::atomic<std::uint32_t> bell_{0};
  std::atomic<bool> has_failed_{false};
  std::exception_ptr failure_;  ///< the first one of the loop; written by the thread that set has_failed_
  std::atomic<bool> ends_{false};
  std::vector<std::thread> threads_;
};

Parallel::Parallel(int n_threads) : n_threads_(n_threads == 0 ? n_available_threads() : n_threads) {
  check(n_threads_ >= 1, "Parallel: a negative number of threads");
  if (n_threads_ > 1) pool_ = std::make_unique<ThreadPool>(n_threads_);
}
Parallel::Parallel(Parallel&& other) noexcept = default;
Parallel& Parallel::operator=(Parallel&& other) noexcept = default;
Parallel::~Parallel() = default;

void Parallel::for_parts(std::int64_t n_parts, const Body& body) const {
  if (pool_ != nullptr && n_parts > 1) return pool_->run(n_parts, body);
  for (std::int64_t part = 0; part < n_parts; ++part) body(part, 0);
}

void Parallel::for_ranges(std::int64_t count, std::int64_t grain,
                          const std::function<void(std::int64_t, std::int64_t)>& body) const {
  check(grain >= 1, "Parallel::for_ranges: the grain must be at least 1");
  if (count <= 0) return;
  const std::int64_t n_grains = (count + grain - 1) / grain;
  const std::int64_t n_ranges = n_threads_ == 1 ? 1 : std::min<std::int64_t>(n_grains, n_threads_ * kRangesPerThread);
  for_parts(n_ranges, [&](std::int64_t range, int) {
    body(n_grains * range / n_ranges * grain, std::min(count, n_grains * (range + 1) / n_ranges * grain));
  });
}

}  // namespace baton
