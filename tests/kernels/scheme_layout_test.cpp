/// Packed codes and scales of f4 stand for what the file has, and those of 8 bits lie where all kernels look for them.
#include "kernels/cuda/schemes/scheme_layout.h"

#include <bit>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device/f8_rows.h"

namespace baton::cuda {
namespace {

TEST(SchemeLayout, codes_of_f4_have_bits_of_their_own) {
  for (std::uint32_t codes = 0; codes < 1 << 16; ++codes) {
    std::uint32_t word = 0;
    for (int i = 0; i < 4; ++i)
      for (int e = 0; e < 2; ++e) word |= place_f4((codes >> (4 * i) & 15u) ^ (e == 0 ? 0 : 5u), i, e);
    for (int i = 0; i < 4; ++i)
      for (int e = 0; e < 2; ++e)
        ASSERT_EQ(code_of_f4(word, i, e), (codes >> (4 * i) & 15u) ^ (e == 0 ? 0 : 5u)) << codes << ' ' << i << ' ' << e;
  }
}

/// A scale as kernels for f32 read it, and as those for bf16 and f16 do: of the low half of the pair.
double as_f32(const F4Scales& scales, std::uint32_t packed) {
  return std::bit_cast<float>(packed << scales.shift) * scales.unit;
}
double as_pair(const F4Scales& scales, std::uint32_t packed, DType dtype) {
  const std::uint32_t pair = packed * scales.pair_factor + scales.pair_base;
  EXPECT_EQ(pair >> 16, pair & 0xffffu);
  if (dtype == DType::bf16) return static_cast<double>(std::bit_cast<float>(pair << 16)) * 0x1p-126;
  Float16 half;
  half.bits = static_cast<std::uint16_t>(pair);
  return static_cast<double>(static_cast<float>(half)) * 0x1p-14;
}

TEST(SchemeLayout, scales_of_nvfp4_are_those_of_the_file_over_a_power_of_two) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const F4Scales scales = f4_scales(DType::f8_e4m3, dtype);
    EXPECT_EQ(packed_e4m3(0), 0u);
    for (std::uint32_t code = 1; code < 127; ++code) {
      Float8E4M3 scale;
      scale.bits = static_cast<std::uint8_t>(code);
      ASSERT_LE(packed_e4m3(code), 255u);
      EXPECT_EQ(as_f32(scales, packed_e4m3(code)), static_cast<float>(scale) * 0x1p-7f) << code;
      EXPECT_EQ(as_pair(scales, packed_e4m3(code), dtype), static_cast<float>(scale) * 0x1p-7f) << code;
    }
  }
}

TEST(SchemeLayout, scales_of_mxfp4_are_those_of_the_file_over_the_largest_of_the_row) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const F4Scales scales = f4_scales(DType::u8, dtype);
    for (int below = 0; below < scales.largest; ++below) {
      const auto packed = static_cast<std::uint32_t>(scales.largest - below);
      EXPECT_EQ(as_pair(scales, packed, dtype), std::ldexp(1.0, -below)) << below;
      if (below < 126) {
        EXPECT_EQ(as_f32(scales, packed), std::ldexp(1.0, -below)) << below;
      }
    }
    EXPECT_EQ(as_f32(scales, 0), 0);
  }
}

// What threads multiply from registers is where matrix units that read shared memory find it: in rows of 64 bytes whose units of
// 16 are swizzled, in the order of x in 8 bits.
TEST(SchemeLayout, threads_and_matrix_units_find_the_same_numbers_of_8_bits) {
  std::vector<bool> is_seen(4096);
  for (int thread = 0; thread < 128; ++thread)
    for (int step = 0; step < 4; ++step)
      for (int i = 0; i < 4; ++i)
        for (int e = 0; e < 2; ++e) {
          const int row = fragment_row(thread, i);
          const int column = fragment_column(thread, step % 2, i, e) + step / 2 * 32;
          const int bit = fragment_bit(WeightScheme::f8, fragment_of_row(i), e);
          const int found = chunk_pair_place(thread) + i % 2 * kSecondRowBytes + step * 4 + bit / 8;
          const int place = f8_place(column);
          ASSERT_EQ(found, row * 64 + (place / 16 ^ row / 2 % 4) * 16 + place % 16)
              << thread << ' ' << step << ' ' << i << ' ' << e;
          is_seen[static_cast<std::size_t>(found)] = true;
        }
  for (const bool seen : is_seen) ASSERT_TRUE(seen);
}

}  // namespace
}  // namespace baton::cuda
