#include "kernels/expected_wait.h"

#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

namespace baton {
namespace {

using namespace std::chrono_literals;
using Duration = ExpectedWait::Duration;

/// The end of a device's step, and a thread that waits for it by a clock of its own.
struct StepEnd {
  Duration now() const { return time; }
  bool is_over() {
    time += 1us;
    return time >= end;
  }
  void sleep_for(Duration duration) { time += duration + lateness; }
  void sleep_until_over() {
    if (time < end) time = end + lateness;
  }
  void ask_until_over() {
    busy += std::max(end - time, Duration(1us));
    time = std::max(time + 1us, end);
  }

  Duration lateness;  ///< of an awakening
  Duration time{};
  Duration end{};
  Duration busy{};  ///< the thread has asked so long
};

struct Loop {
  double idle_share;  ///< of the device, beside that of a thread that asks all the time
  double busy_share;  ///< of the waits of such a thread
};

/// Runs steps that take `device`, each after `host` of work of the thread. `ahead`: a step is enqueued while the one before it runs.
Loop run_loop(Duration device, Duration host, bool ahead, Duration lateness = 60us, int every = 1 << 30, Duration other = {}) {
  ExpectedWait expected;
  StepEnd event{.lateness = lateness};
  Duration device_end{};
  Duration idle{};
  Duration wait{};
  constexpr int kSteps = 200;
  constexpr int kLearns = 16;
  Duration learnt{};
  const auto enqueue = [&](int step) {
    event.time += host;
    if (step > kLearns) idle += std::max(event.time - device_end, Duration{});
    device_end = std::max(device_end, event.time) + (step % every == 0 ? other : device);
    return device_end;
  };
  Duration first = ahead ? enqueue(0) : Duration{};
  for (int step = 1; step < kSteps; ++step) {
    const Duration next = enqueue(step);
    event.end = ahead ? std::exchange(first, next) : next;
    if (step == kLearns) event.busy = wait = {}, learnt = event.time;
    const Duration begin = event.time;
    wait_as_expected(expected, ahead, event);
    wait += std::max(event.end - begin, Duration{});
  }
  const Duration asks_only = ahead ? Duration{} : (kSteps - kLearns - 1) * (host + 1us);
  return {static_cast<double>((idle - asks_only).count()) / static_cast<double>((event.time - learnt).count()),
          static_cast<double>(event.busy.count()) / static_cast<double>(std::max(wait, Duration(1us)).count())};
}

TEST(ExpectedWait, sleeps_through_what_eight_waits_had_less_a_margin) {
  ExpectedWait waits;
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(waits.nap(), 0ns) << i;
    waits.took(i == 3 ? 4ms : 5ms, false);
  }
  EXPECT_EQ(waits.nap(), 3850us);
  for (int i = 0; i < 4; ++i) waits.took(5ms, false);  // the short one is forgotten
  EXPECT_EQ(waits.nap(), 4850us);
}

TEST(ExpectedWait, does_not_sleep_for_waits_as_short_as_an_awakening) {
  ExpectedWait waits;
  for (int i = 0; i < 8; ++i) waits.took(199us, false);
  EXPECT_EQ(waits.nap(), 0ns);
  for (int i = 0; i < 8; ++i) waits.took(200us, false);
  EXPECT_EQ(waits.nap(), 50us);
}

TEST(ExpectedWait, a_nap_that_was_too_long_halves_the_next_ones_for_eight_waits) {
  ExpectedWait waits;
  for (int i = 0; i < 8; ++i) waits.took(5ms, false);
  waits.took(4850us, true);
  EXPECT_EQ(waits.nap(), 2275us);
  waits.took(2275us, true);
  EXPECT_EQ(waits.nap(), 987500ns);
  for (int i = 0; i < 8; ++i) waits.took(5ms, false);
  EXPECT_EQ(waits.nap(), 4850us);
}

TEST(ExpectedWait, is_mostly_long_with_one_short_wait_of_eight) {
  ExpectedWait waits;
  for (int i = 0; i < 7; ++i) waits.took(ExpectedWait::kLong, false);
  EXPECT_FALSE(waits.is_mostly_long());
  waits.took(ExpectedWait::kLong - 1us, false);
  EXPECT_TRUE(waits.is_mostly_long());
  waits.took(0us, false);
  EXPECT_FALSE(waits.is_mostly_long());
  for (int i = 0; i < 7; ++i) waits.took(ExpectedWait::kLong, false);
  EXPECT_TRUE(waits.is_mostly_long());
}

TEST(ExpectedWait, costs_neither_the_device_nor_a_core_where_a_step_is_enqueued_ahead) {
  for (const Duration device : {Duration(700us), Duration(1ms), Duration(4ms), Duration(20ms)}) {
    const Loop loop = run_loop(device, 100us, /*ahead=*/true);
    EXPECT_EQ(loop.idle_share, 0) << device.count();
    EXPECT_EQ(loop.busy_share, 0) << device.count();
  }
  const Loop mixed = run_loop(4ms, 100us, /*ahead=*/true, 60us, /*every=*/5, 12ms);
  EXPECT_EQ(mixed.idle_share, 0);
  EXPECT_EQ(mixed.busy_share, 0);
}

TEST(ExpectedWait, asks_all_the_time_where_a_late_awakening_would_leave_the_device_idle) {
  for (const Duration device : {Duration(110us), Duration(150us), Duration(250us)}) {
    const Loop loop = run_loop(device, 100us, /*ahead=*/true, 200us);
    EXPECT_EQ(loop.idle_share, 0) << device.count();
    EXPECT_GE(loop.busy_share, 0.9) << device.count();
  }
}

TEST(ExpectedWait, sleeps_once_in_short_steps) {
  const Loop loop = run_loop(500us, 100us, /*ahead=*/true);
  EXPECT_EQ(loop.idle_share, 0);
  EXPECT_LE(loop.busy_share, 0.5);
}

TEST(ExpectedWait, awakes_before_the_end_where_nothing_is_enqueued_ahead) {
  EXPECT_LE(run_loop(100us, 100us, /*ahead=*/false).idle_share, 1e-3);
  for (const Duration device : {Duration(1ms), Duration(4ms)}) {
    const Loop loop = run_loop(device, 100us, /*ahead=*/false);
    EXPECT_LE(loop.idle_share, 1e-3) << device.count();
    EXPECT_LE(loop.busy_share, Duration(150us) * 1.0 / device) << device.count();
  }
}

}  // namespace
}  // namespace baton
