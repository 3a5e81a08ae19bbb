/// A counter in memory that processes share, and on which they can sleep.
#pragma once

#include <atomic>
#include <cstdint>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace baton {

/// A 32-bit counter that wraps around. One process sets it, others wait for it. A process that is killed while it waits
/// costs the setter a system call for each set, and nothing else. Trivially shared: valid in zeroed memory.
struct alignas(64) SharedCounter {
  std::atomic<std::uint32_t> value;
  std::atomic<std::uint32_t> n_waiting;

  /// Sets the counter and wakes the waiting threads.
  void set(std::uint32_t to) {
    value.store(to, std::memory_order_seq_cst);
    wake();
  }
  /// Lets the waiting threads look again.
  void wake() {
    if (n_waiting.load(std::memory_order_seq_cst) == 0) return;
    syscall(SYS_futex, address(), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  }
  /// Sleeps while the value is `seen`, for at most `most_ns`; may return earlier.
  void sleep_while(std::uint32_t seen, long most_ns) {
    n_waiting.fetch_add(1, std::memory_order_seq_cst);
    const timespec most{.tv_sec = 0, .tv_nsec = most_ns};
    syscall(SYS_futex, address(), FUTEX_WAIT, seen, &most, nullptr, 0);
    n_waiting.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
  std::uint32_t* address() { return reinterpret_cast<std::uint32_t*>(&value); }
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(SharedCounter) == 64);

}  // namespace baton
