/// Counting and giving back (core/limits/shared_bytes.h).
#include "core/limits/shared_bytes.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(SharedBytes, adds_up_shares_and_gets_them_back) {
  const auto bytes = std::make_shared<SharedBytes>(1000);
  {
    BytesShare one(bytes);
    BytesShare other(bytes);
    one.set(600);
    other.set(400);
    EXPECT_EQ(bytes->used(), 1000u);
    EXPECT_FALSE(bytes->is_over());
    other.set(401);
    EXPECT_TRUE(bytes->is_over());
    one.set(10);
    EXPECT_EQ(bytes->used(), 411u);
  }
  EXPECT_EQ(bytes->used(), 0u);
}

TEST(SharedBytes, asks_large_shares_to_shrink_when_all_together_are_over_the_limit) {
  const auto bytes = std::make_shared<SharedBytes>(2560);
  BytesShare large(bytes);
  BytesShare small(bytes);
  large.set(2560);
  EXPECT_FALSE(large.is_too_large());
  small.set(10);
  EXPECT_TRUE(large.is_too_large());
  EXPECT_FALSE(small.is_too_large());
  small.set(11);
  EXPECT_TRUE(small.is_too_large());
}

TEST(SharedBytes, a_share_of_nothing_is_never_too_large) {
  BytesShare none;
  none.set(1 << 30);
  EXPECT_FALSE(none.is_too_large());
}

}  // namespace
}  // namespace baton
