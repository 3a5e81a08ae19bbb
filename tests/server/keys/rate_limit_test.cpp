/// RateLimit: bursts, debts and changes of the limit.
#include "server/keys/api_keys.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

using std::chrono::seconds;
using Clock = RateLimit::Clock;

TEST(RateLimit, is_none_until_it_is_set) {
  RateLimit limit;
  limit.take(1'000'000, Clock::time_point());
  EXPECT_EQ(limit.wait_for(1'000'000, Clock::time_point()).count(), 0);
}

TEST(RateLimit, gives_a_minutes_worth_at_once_and_then_one_after_another) {
  RateLimit limit;
  Clock::time_point now{seconds(1000)};
  limit.set(6, now);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(limit.wait_for(1, now).count(), 0) << i;
    limit.take(1, now);
  }
  EXPECT_DOUBLE_EQ(limit.wait_for(1, now).count(), 10);
  now += seconds(9);
  EXPECT_NEAR(limit.wait_for(1, now).count(), 1, 1e-9);
  now += seconds(1);
  EXPECT_NEAR(limit.wait_for(1, now).count(), 0, 1e-9);
  now += seconds(3600);
  EXPECT_EQ(limit.wait_for(6, now).count(), 0);
  limit.take(6, now);
  EXPECT_GT(limit.wait_for(1, now).count(), 0) << "an idle hour saves up no more than a minute's worth";
}

TEST(RateLimit, lets_a_debt_come_back_first) {
  RateLimit limit;
  Clock::time_point now{seconds(1000)};
  limit.set(60, now);
  limit.take(180, now);
  EXPECT_DOUBLE_EQ(limit.wait_for(1, now).count(), 121);
  EXPECT_DOUBLE_EQ(limit.wait_for(1000, now).count(), 180) << "no more than a minute's worth is ever there";
}

TEST(RateLimit, keeps_what_was_taken_when_it_changes) {
  RateLimit limit;
  const Clock::time_point now{seconds(1000)};
  limit.set(10, now);
  limit.take(10, now);
  limit.set(20, now);
  EXPECT_DOUBLE_EQ(limit.wait_for(1, now).count(), 3);
  limit.set(20, now);
  EXPECT_DOUBLE_EQ(limit.wait_for(1, now).count(), 3);
  limit.set({}, now);
  EXPECT_EQ(limit.wait_for(1, now).count(), 0);
}

}  // namespace
}  // namespace baton
