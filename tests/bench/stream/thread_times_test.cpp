/// Processor time by thread (bench/stream/thread_times.h).
#include "bench/stream/thread_times.h"

#include <ctime>
#include <latch>
#include <thread>

#include <gtest/gtest.h>

#include "core/thread_name.h"

namespace baton {
namespace {

TEST(ThreadTimes, tell_threads_by_their_names) {
  std::latch named(2), looked(1);
  const auto wait = [&] {
    name_this_thread("a name that is far too long");
    named.arrive_and_wait();
    looked.wait();
  };
  std::jthread first(wait), second(wait);
  named.wait();
  const auto times = thread_times(0);
  looked.count_down();
  ASSERT_TRUE(times);
  ASSERT_TRUE(times->contains("a name that is "));
  EXPECT_EQ(times->at("a name that is ").n_threads, 2);
}

TEST(ThreadTimes, grow_while_a_thread_computes) {
  const auto before = thread_times(0);
  ASSERT_TRUE(before);
  const auto processor_ms = [] { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  for (const double end = processor_ms() + 30; processor_ms() < end;) {
  }
  const auto after = thread_times(0);
  ASSERT_TRUE(after);
  double seconds = 0;
  for (const auto& [name, time] : time_between(*before, *after)) seconds += time.seconds;
  EXPECT_GE(seconds, 0.02);
}

TEST(ThreadTimes, name_the_process_that_is_not_there) {
  const auto times = thread_times(1 << 30);
  ASSERT_FALSE(times);
  EXPECT_EQ(times.error().message, "there is no process 1073741824 to look at");
}

}  // namespace
}  // namespace baton
