/// Tests of budgets of text work: limits, chunks, threads and cancellation.
#include "core/limits/work_budget.h"

#include <atomic>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(WorkBudget, ends_at_the_step_over_its_limit_and_stays_over) {
  for (const std::int64_t limit : {std::int64_t{0}, std::int64_t{1}, std::int64_t{5000}, 3 * WorkBudget::kStepsBetweenChecks}) {
    WorkBudget budget({.steps = limit, .bytes = 0});
    WorkMeter meter(budget);
    for (std::int64_t i = 0; i < limit; ++i) ASSERT_TRUE(meter.spend(1)) << i << " of " << limit;
    EXPECT_FALSE(meter.spend(1));
    EXPECT_FALSE(meter.spend(0));
    EXPECT_FALSE(meter.is_within());
    EXPECT_EQ(budget.error("the test").code, ErrorCode::too_large);
    EXPECT_EQ(budget.error("the test").message, "the test needs more than " + std::to_string(limit) + " steps of work");
  }
}

TEST(WorkBudget, many_steps_at_once_count_like_one_by_one) {
  WorkBudget budget({.steps = 100'000, .bytes = 0});
  WorkMeter meter(budget);
  EXPECT_TRUE(meter.spend(99'999));
  EXPECT_TRUE(meter.spend(1));
  meter.settle();
  EXPECT_EQ(budget.steps(), 100'000);
  EXPECT_FALSE(meter.spend(std::numeric_limits<std::int64_t>::max() / 2));
}

TEST(WorkBudget, a_meter_gives_back_what_it_did_not_use) {
  WorkBudget budget({.steps = 100'000, .bytes = 0});
  {
    WorkMeter meter(budget);
    EXPECT_TRUE(meter.spend(10));
    EXPECT_GE(budget.steps(), 10);
  }
  EXPECT_EQ(budget.steps(), 10);
}

TEST(WorkBudget, bytes_that_end_before_the_work_are_given_back) {
  WorkBudget budget({.steps = 1000, .bytes = 1000});
  WorkMeter meter(budget);
  EXPECT_TRUE(meter.write(100));
  {
    HeldBytes held(meter);
    EXPECT_TRUE(held.add(600));
    HeldBytes moved = std::move(held);
    EXPECT_EQ(budget.bytes(), 700);
    {
      const HeldBytes copy = HeldBytes(meter);
      HeldBytes other(meter);
      EXPECT_TRUE(other.add(200));
      other = copy;
      EXPECT_EQ(budget.bytes(), 700);
    }
    moved.remove(500);
    EXPECT_EQ(budget.bytes(), 200);
    moved.remove(1000);
    EXPECT_EQ(budget.bytes(), 100);
    EXPECT_TRUE(moved.add(900));
  }
  EXPECT_EQ(budget.bytes(), 100);
  EXPECT_EQ(budget.most_bytes(), 1000);
  EXPECT_TRUE(meter.is_within());
  HeldBytes too_much(meter);
  EXPECT_FALSE(too_much.add(901));
  EXPECT_FALSE(meter.is_within());
}

TEST(WorkBudget, asks_no_more_whether_it_is_cancelled_when_it_is_over) {
  int n_questions = 0;
  WorkBudget budget({.steps = 1 << 20, .bytes = 0}, [&] { return ++n_questions == 1; });
  WorkMeter meter(budget);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(meter.spend(1));
  EXPECT_EQ(n_questions, 1);
}

TEST(WorkBudget, asks_for_memory_before_it_is_written_and_ends_where_there_is_none) {
  constexpr std::int64_t kTake = WorkBudget::kBytesPerTake;
  std::int64_t taken = 0;
  WorkBudget budget({.steps = 100, .bytes = 100 * kTake}, {}, [&](std::int64_t n) {
    if (taken + n > 5 * kTake) return false;
    taken += n;
    return true;
  });
  WorkMeter meter(budget);
  EXPECT_TRUE(meter.write(1));
  EXPECT_EQ(taken, kTake);
  EXPECT_TRUE(meter.write(kTake - 1));
  EXPECT_EQ(taken, kTake) << "it is asked for what is not granted yet";
  EXPECT_TRUE(meter.write(2 * kTake + 1));
  EXPECT_EQ(taken, 4 * kTake);
  EXPECT_FALSE(meter.write(3 * kTake));
  EXPECT_EQ(taken, 4 * kTake);
  EXPECT_FALSE(meter.spend(1));
  EXPECT_EQ(budget.error("the test").code, ErrorCode::unavailable);
  EXPECT_EQ(budget.error("the test").message,
            "the test needs more than the 4194304 bytes of memory that others leave it: try again later");
}

TEST(WorkBudget, bytes_have_a_limit_of_their_own) {
  WorkBudget budget({.steps = 100'000, .bytes = 1000});
  WorkMeter meter(budget);
  EXPECT_TRUE(meter.spend(1));
  EXPECT_TRUE(meter.write(1000));
  EXPECT_TRUE(meter.spend(1));
  EXPECT_FALSE(meter.write(1));
  EXPECT_FALSE(meter.spend(1)) << "the steps that the meter held must not outlive the budget";
  EXPECT_EQ(budget.error("it").message, "it needs more than 1000 bytes of memory");
  WorkBudget other({.steps = 1, .bytes = 1000});
  WorkMeter huge(other);
  EXPECT_FALSE(huge.write(std::numeric_limits<std::size_t>::max()));
}

TEST(WorkBudget, work_that_is_not_wanted_ends_within_a_chunk) {
  bool is_cancelled = false;
  WorkBudget budget({.steps = std::int64_t{1} << 40, .bytes = 0}, [&] { return is_cancelled; });
  WorkMeter meter(budget);
  EXPECT_TRUE(meter.spend(1));
  is_cancelled = true;
  std::int64_t n = 0;
  while (meter.spend(1)) ASSERT_LE(++n, WorkBudget::kStepsBetweenChecks);
  EXPECT_EQ(budget.error("it").code, ErrorCode::unavailable);
}

TEST(WorkBudget, threads_share_it) {
  constexpr std::int64_t kLimit = 40 * WorkBudget::kStepsBetweenChecks;
  WorkBudget budget({.steps = kLimit, .bytes = 0});
  std::atomic<std::int64_t> done = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      WorkMeter meter(budget);
      std::int64_t n = 0;
      while (meter.spend(1)) ++n;
      done += n;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(done, kLimit + 4 * WorkBudget::kStepsBetweenChecks);
  EXPECT_GE(done, kLimit - 4 * WorkBudget::kStepsBetweenChecks);
}

}  // namespace
}  // namespace baton
