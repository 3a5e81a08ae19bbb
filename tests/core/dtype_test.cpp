#include "core/dtype.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(DType, bf16_rounds_to_nearest_even) {
  EXPECT_EQ(static_cast<float>(BFloat16(1.0f)), 1.0f);
  EXPECT_EQ(static_cast<float>(BFloat16(1.0f + 0x1p-8f)), 1.0f) << "a tie goes to the even neighbour below";
  EXPECT_EQ(static_cast<float>(BFloat16(1.0f + 0x3p-8f)), 1.0f + 0x4p-8f) << "a tie goes to the even neighbour above";
  EXPECT_EQ(static_cast<float>(BFloat16(1.0f + 0x1p-8f + 0x1p-20f)), 1.0f + 0x2p-8f) << "over a tie goes up";
}

TEST(DType, bf16_keeps_nan_and_infinity) {
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(static_cast<float>(BFloat16(std::numeric_limits<float>::infinity())), std::numeric_limits<float>::infinity());
  EXPECT_EQ(static_cast<float>(BFloat16(std::numeric_limits<float>::max())), std::numeric_limits<float>::infinity());
}

TEST(DType, names_of_config_files_are_known) {
  EXPECT_EQ(dtype_from_name("bfloat16"), DType::bf16);
  EXPECT_EQ(dtype_from_name("float32"), DType::f32);
  EXPECT_EQ(dtype_from_name("int3"), std::nullopt);
}

}  // namespace
}  // namespace baton
