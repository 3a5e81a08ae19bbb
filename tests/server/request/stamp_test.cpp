/// Ids and times of answers (server/request/stamp.h).
#include "server/request/stamp.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(AnswerStamp, ids_are_32_digits_and_differ) {
  const std::string id = random_id();
  EXPECT_EQ(id.size(), 32u);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(random_id(), id);
}

TEST(AnswerStamp, times_are_after_2025_and_do_not_go_back) {
  const std::int64_t now = unix_seconds();
  EXPECT_GT(now, 1'735'689'600);
  EXPECT_GE(unix_seconds(), now);
}

}  // namespace
}  // namespace baton
