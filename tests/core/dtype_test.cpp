#include "core/dtype.h"

#include <cmath>
#include <limits>
#include <vector>

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

/// Every finite non-negative value of f8_e4m3 by the definition, in the order of its codes.
std::vector<double> e4m3_numbers() {
  std::vector<double> numbers;
  for (int code = 0; code < 0x7f; ++code) {
    const int exponent = code >> 3;
    const int mantissa = code & 7;
    numbers.push_back(exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10));
  }
  return numbers;
}

/// The nearest value, found by search; the even code on a tie, the largest value beyond it.
int nearest_e4m3(const std::vector<double>& numbers, double magnitude) {
  int best = 0;
  for (int code = 1; code < 0x7f; ++code) {
    const auto distance = [&](int c) { return std::abs(numbers[static_cast<std::size_t>(c)] - magnitude); };
    if (distance(code) < distance(best) || (distance(code) == distance(best) && code % 2 == 0)) best = code;
  }
  return best;
}

Float8E4M3 f8_of_bits(int bits) {
  Float8E4M3 value;
  value.bits = static_cast<std::uint8_t>(bits);
  return value;
}

TEST(DType, f8_holds_the_numbers_of_its_256_codes) {
  const auto numbers = e4m3_numbers();
  EXPECT_EQ(numbers.back(), 448.0);
  for (int code = 0; code < 256; ++code) {
    const float value = static_cast<float>(f8_of_bits(code));
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    EXPECT_EQ(std::abs(static_cast<double>(value)), numbers[static_cast<std::size_t>(code & 0x7f)]) << code;
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
    EXPECT_EQ(Float8E4M3(value).bits, code) << "there and back";
  }
}

TEST(DType, f8_rounds_to_nearest_even_between_all_neighbours) {
  const auto numbers = e4m3_numbers();
  for (std::size_t code = 0; code + 1 < numbers.size(); ++code) {
    const auto tie = static_cast<float>((numbers[code] + numbers[code + 1]) / 2);
    const auto below = static_cast<int>(code);
    const int even = below % 2 == 0 ? below : below + 1;
    EXPECT_EQ(Float8E4M3(tie).bits, even) << tie;
    EXPECT_EQ(Float8E4M3(-tie).bits, even | 0x80) << -tie;
    EXPECT_EQ(Float8E4M3(std::nextafter(tie, 0.0f)).bits, below) << tie;
    EXPECT_EQ(Float8E4M3(std::nextafter(tie, 1e9f)).bits, below + 1) << tie;
  }
}

TEST(DType, f8_gives_the_nearest_number_for_every_exponent_of_a_float) {
  const auto numbers = e4m3_numbers();
  std::uint32_t state = 1;
  for (std::uint32_t exponent = 0; exponent < 255; ++exponent)
    for (int i = 0; i < 200; ++i) {
      state = state * 1664525u + 1013904223u;
      const auto value = std::bit_cast<float>((exponent << 23) | (state >> 9));
      ASSERT_EQ(Float8E4M3(value).bits, nearest_e4m3(numbers, static_cast<double>(value))) << value;
      ASSERT_EQ(Float8E4M3(-value).bits, nearest_e4m3(numbers, static_cast<double>(value)) | 0x80) << -value;
    }
}

TEST(DType, f8_saturates_at_448_and_keeps_nan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float large : {448.0f, 449.0f, 464.0f, 480.0f, 1e30f, std::numeric_limits<float>::max(), kInfinity}) {
    EXPECT_EQ(static_cast<float>(Float8E4M3(large)), 448.0f) << large;
    EXPECT_EQ(static_cast<float>(Float8E4M3(-large)), -448.0f) << large;
  }
  EXPECT_EQ(Float8E4M3(std::numeric_limits<float>::quiet_NaN()).bits, 0x7f);
  EXPECT_EQ(Float8E4M3(-std::numeric_limits<float>::quiet_NaN()).bits, 0x7f);
  EXPECT_EQ(Float8E4M3(std::bit_cast<float>(0x7f800001u)).bits, 0x7f);
  EXPECT_EQ(Float8E4M3(-0.0f).bits, 0x80);
}

TEST(DType, stored_floats_are_visited_with_their_own_type) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f8_e4m3})
    EXPECT_EQ(visit_stored_float(dtype, []<class T>(T) { return DTypeOf<T>::value; }), dtype);
}

TEST(DType, names_of_config_files_are_known) {
  EXPECT_EQ(dtype_from_name("bfloat16"), DType::bf16);
  EXPECT_EQ(dtype_from_name("float32"), DType::f32);
  EXPECT_EQ(dtype_from_name("int3"), std::nullopt);
}

}  // namespace
}  // namespace baton
