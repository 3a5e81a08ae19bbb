/// What one case of a fuzz target may cost: processor time and memory.
#pragma once

#include <sanitizer/allocator_interface.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace baton::test {

/// Bytes that the program has allocated and not freed, and the most there were since the last reset.
struct AllocatedBytes {
  std::atomic<std::int64_t> now = 0;
  std::atomic<std::int64_t> most = 0;

  static AllocatedBytes& instance() {
    static AllocatedBytes counter;
    return counter;
  }
  void add(std::int64_t n_bytes) {
    const std::int64_t total = now.fetch_add(n_bytes, std::memory_order_relaxed) + n_bytes;
    if (total > most.load(std::memory_order_relaxed)) most.store(total, std::memory_order_relaxed);
  }
};

/// Ends the program with a sentence if what happens in its scope takes more than 24 seconds of processor time or 350 MB more than
/// there were. Any document of a request costs at most an eighth of that time in a release; sanitizers, which must be on, take the rest.
class CaseLimits {
 public:
  static constexpr double kSeconds = 8 * 3;
  static constexpr std::int64_t kBytes = 350'000'000;

  CaseLimits() {
    static const int installed = __sanitizer_install_malloc_and_free_hooks(
        [](const volatile void*, std::size_t size) { AllocatedBytes::instance().add(static_cast<std::int64_t>(size)); },
        [](const volatile void* bytes) {
          AllocatedBytes::instance().add(-static_cast<std::int64_t>(__sanitizer_get_allocated_size(bytes)));
        });
    if (installed == 0) fail("no hooks of the allocator", 0, 0);
    bytes_before_ = AllocatedBytes::instance().now;
    AllocatedBytes::instance().most = bytes_before_;
    seconds_before_ = seconds();
  }
  CaseLimits(const CaseLimits&) = delete;
  CaseLimits& operator=(const CaseLimits&) = delete;
  ~CaseLimits() {
    const double took = seconds() - seconds_before_;
    const std::int64_t bytes = AllocatedBytes::instance().most - bytes_before_;
    if (took > kSeconds || bytes > kBytes) fail("a case costs too much", took, bytes);
  }

 private:
  static double seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }
  [[noreturn]] static void fail(const char* what, double took, std::int64_t bytes) {
    std::fprintf(stderr, "%s: %.2f s of processor time (limit %.0f), %lld bytes (limit %lld)\n", what, took, kSeconds,
                 static_cast<long long>(bytes), static_cast<long long>(kBytes));
    std::abort();
  }

  std::int64_t bytes_before_ = 0;
  double seconds_before_ = 0;
};

}  // namespace baton::test
