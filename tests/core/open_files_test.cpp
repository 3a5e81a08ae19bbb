/// The limit of open files (core/open_files.h).
#include "core/open_files.h"

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

}  // namespace
}  // namespace baton
