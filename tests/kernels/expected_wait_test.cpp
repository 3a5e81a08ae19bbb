#include "kernels/expected_wait.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

using namespace std::chrono_literals;

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

}  // namespace
}  // namespace baton
