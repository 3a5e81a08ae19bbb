/// The processor's time of a thread.
#pragma once

#include <chrono>
#include <ctime>

namespace baton {

/// The processor's time that the calling thread has had. What judges or charges a piece of work takes it, so that a busy machine
/// makes no work longer.
inline std::chrono::nanoseconds thread_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace baton
