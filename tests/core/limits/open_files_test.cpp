/// The limit of open files (core/limits/open_files.h).
#include "core/limits/open_files.h"

#include <sys/resource.h>

#include <limits>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(OpenFiles, are_raised_to_what_is_wanted_or_allowed_and_never_lowered) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{32, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(allow_open_files(48), 48U);
  EXPECT_EQ(allow_open_files(16), 48U);
  EXPECT_EQ(allow_open_files(std::numeric_limits<std::size_t>::max()), before.rlim_max);
}

TEST(SpareFiles, can_be_given_and_are_opened_again) {
  SpareFiles files(2);
  EXPECT_EQ(files.n_missing(), 0U);
  EXPECT_TRUE(files.give());
  EXPECT_TRUE(files.give());
  EXPECT_FALSE(files.give());
  EXPECT_EQ(files.n_missing(), 2U);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  files.refill();
  EXPECT_EQ(files.n_missing(), 2U);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  files.refill();
  EXPECT_EQ(files.n_missing(), 0U);
}

}  // namespace
}  // namespace baton
