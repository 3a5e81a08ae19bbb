/// The time in which a device works, from made-up records of steps.
#include "bench/engine/device_busy.h"

#include <chrono>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

StepRecord record(StepRecord::What what, std::int64_t step, int ms) {
  return {what, step, std::chrono::steady_clock::time_point(std::chrono::milliseconds(1000 + ms))};
}

TEST(DeviceBusyTime, counts_a_step_of_an_asynchronous_device_from_its_plan_or_the_end_of_the_step_before) {
  using enum StepRecord::What;
  const std::vector<StepRecord> records{
      record(plan_begin, 0, 0), record(plan_end, 0, 1),   record(plan_begin, 1, 1),
      record(plan_end, 1, 2),   record(run_begin, 0, 3),  record(run_end, 0, 10),   // 9 ms from its plan
      record(plan_end, 2, 12),  record(run_begin, 1, 13), record(run_end, 1, 20),   // 10 ms from the end of step 0
      record(run_begin, 2, 40), record(run_end, 2, 40),                             // the device had ended long before
      record(plan_end, 3, 45),  record(run_begin, 3, 46), record(run_end, 3, 50)};  // 5 ms
  DeviceBusyTime device(/*is_asynchronous=*/true);
  device.take(records);
  EXPECT_NEAR(device.seconds(), 0.024, 1e-9);
  device.take(records);  // nothing new
  EXPECT_NEAR(device.seconds(), 0.024, 1e-9);
  DeviceBusyTime processor(/*is_asynchronous=*/false);
  processor.take(records);
  EXPECT_NEAR(processor.seconds(), 0.007 + 0.007 + 0.004, 1e-9);
}

}  // namespace
}  // namespace baton
