#include "plan/attention_plan.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

LargerTiles tiles() {
  return {.costs = {.n_workers = 100, .row_tile_queries = 128}, .smaller_ratio = 2, .launch_us = 5, .least_gain = 0.1};
}

TEST(KernelShares, both_kernels_end_together) {
  const std::int32_t n = larger_share({60, 20}, tiles());
  // 60 * 100 / n + 5 and 20 * 100 / (100 - n) are equal at 76.6.
  EXPECT_GE(n, 76);
  EXPECT_LE(n, 77);
  EXPECT_EQ(larger_share({1000, 1}, tiles()), 99) << "the other kernel keeps one";
  EXPECT_LT(larger_share({40, 400}, tiles()), 20);
}

TEST(KernelShares, no_share_where_one_kernel_is_as_fast) {
  EXPECT_EQ(larger_share({3, 20}, tiles()), 0) << "26 us in one kernel; in two no less than 23.8";
  EXPECT_EQ(larger_share({0, 20}, tiles()), 0);
  LargerTiles alike = tiles();
  alike.smaller_ratio = 1;
  EXPECT_EQ(larger_share({60, 20}, alike), 0);
  EXPECT_EQ(larger_share({60, 20}, LargerTiles{}), 0) << "no such kernel";
}

}  // namespace
}  // namespace baton
