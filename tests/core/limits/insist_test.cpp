/// Trying again while memory is short (core/limits/insist.h).
#include "core/limits/insist.h"

#include <new>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Insist, tries_until_there_is_memory) {
  int n_trials = 0;
  insist("it was not insisted on", [&] {
    if (++n_trials < 4) throw std::bad_alloc();
  });
  EXPECT_EQ(n_trials, 4);
}

TEST(Insist, lets_other_exceptions_pass) {
  EXPECT_THROW(insist("it was not insisted on", [] { throw 1; }), int);
}

TEST(Insist, ends_the_program_after_five_hundred_trials) {
  EXPECT_EXIT(wait_for_memory(500, "the memory did not come"), ::testing::ExitedWithCode(1), "the memory did not come");
}

}  // namespace
}  // namespace baton
