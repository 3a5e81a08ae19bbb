#include "plan/kernel_shares.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

AttentionCosts costs() {
  AttentionCosts costs;
  costs.n_wide_workers = 100;
  costs.narrow_ratio = 2;
  costs.wide_launch_us = 5;
  costs.wide_gain = 0.1;
  return costs;
}

TEST(KernelShares, both_kernels_end_together) {
  const std::int32_t n = wide_share({60, 20}, costs());
  // 60 * 100 / n + 5 and 20 * 100 / (100 - n) are equal at 76.6.
  EXPECT_GE(n, 76);
  EXPECT_LE(n, 77);
  EXPECT_EQ(wide_share({1000, 1}, costs()), 99) << "the other kernel keeps one";
  EXPECT_LT(wide_share({40, 400}, costs()), 20);
}

TEST(KernelShares, no_share_where_one_kernel_is_as_fast) {
  EXPECT_EQ(wide_share({3, 20}, costs()), 0) << "26 us in one kernel; in two no less than 23.8";
  EXPECT_EQ(wide_share({0, 20}, costs()), 0);
  AttentionCosts alike = costs();
  alike.narrow_ratio = 1;
  EXPECT_EQ(wide_share({60, 20}, alike), 0);
  EXPECT_EQ(wide_share({60, 20}, AttentionCosts{}), 0) << "no such kernel";
}

}  // namespace
}  // namespace baton
