/// Parallel loops over OpenMP, or over std::thread where BATON_PARALLEL_STD_THREAD is set (the thread-sanitizer build, which
/// cannot see libgomp's barriers).
#include "core/parallel.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "core/check.h"

#ifdef BATON_OPENMP
#include <omp.h>
#endif
#ifdef BATON_PARALLEL_STD_THREAD
#include <thread>
#include <vector>
#endif

namespace baton {
namespace {

int n_affinity_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

/// The quota of control group version 2 (cpu.max: "max 100000" or "200000 100000") or version 1, rounded up; 0 for none.
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

}  // namespace

int n_available_threads() {
  const int quota = n_quota_threads();
  const int affinity = n_affinity_threads();
  return quota > 0 ? std::min(quota, affinity) : affinity;
}

Parallel::Parallel(int n_threads) : n_threads_(n_threads == 0 ? n_available_threads() : n_threads) {
  check(n_threads_ >= 1, "Parallel: a negative number of threads");
}

void Parallel::bind_libraries() const {
#ifdef BATON_OPENMP
  omp_set_num_threads(n_threads_);
#endif
}

void Parallel::for_each_thread(const std::function<void(int)>& body) const {
  if (n_threads_ == 1) return body(0);
#ifdef BATON_PARALLEL_STD_THREAD
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(n_threads_ - 1));
  for (int thread = 1; thread < n_threads_; ++thread) threads.emplace_back([&body, thread] { body(thread); });
  body(0);
  for (std::thread& thread : threads) thread.join();
#else
  // Dynamic teams may be smaller than asked for, so the threads are the iterations of a static loop.
  const int n_threads = n_threads_;
#pragma omp parallel for num_threads(n_threads) schedule(static, 1)
  for (int thread = 0; thread < n_threads; ++thread) body(thread);
#endif
}

void Parallel::for_ranges(std::int64_t count, std::int64_t grain,
                          const std::function<void(std::int64_t, std::int64_t)>& body) const {
  check(grain >= 1, "Parallel::for_ranges: the grain must be at least 1");
  if (count <= 0) return;
  const std::int64_t n_grains = (count + grain - 1) / grain;
  const std::int64_t n_ranges = std::min<std::int64_t>(n_grains, n_threads_);
  if (n_ranges == 1) return body(0, count);
  for_each_thread([&](int thread) {
    if (thread >= n_ranges) return;
    const std::int64_t begin = n_grains * thread / n_ranges * grain;
    const std::int64_t end = std::min(count, n_grains * (thread + 1) / n_ranges * grain);
    if (begin < end) body(begin, end);
  });
}

}  // namespace baton
