/// Writes rows in 8 bits: see kernels/ops.h.
#pragma once

#include <cstdint>

#include <cuda_fp8.h>

#include "kernels/cuda/device/f8_rows.h"
#include "kernels/cuda/device/warp.cuh"

namespace baton::cuda {

/// The scale of a row by its largest magnitude, and what its numbers are multiplied by.
struct F8Scale {
  __device__ __forceinline__ explicit F8Scale(float most) : scale(fmaxf(most / 448.0f, 0x1p-126f)), factor(1.0f / scale) {}
  float scale;
  float factor;
};

/// Two numbers rounded to nearest even, the first in the low bits.
__device__ __forceinline__ std::uint32_t f8_pair(float first, float second) {
  return __nv_cvt_float2_to_fp8x2({first, second}, __NV_SATFINITE, __NV_E4M3);
}

/// Stores columns [i, i + 4) of a row, i a multiple of 4. The lanes whose columns are those of a block call it together: a lane
/// has half of two words, and the lane with the columns 8 before or after has their other halves.
__device__ __forceinline__ void store_f8(const float (&values)[4], float factor, std::uint8_t* row, std::int64_t i) {
  const std::uint32_t pairs[2] = {f8_pair(values[0] * factor, values[1] * factor),
                                  f8_pair(values[2] * factor, values[3] * factor)};
  const bool is_second = i % 16 >= 8;  // of the halves
  const std::uint32_t lanes = 0xffffu << (threadIdx.x & 16u);
  const std::uint32_t given = __shfl_xor_sync(lanes, is_second ? pairs[0] : pairs[1], 2);
  const std::uint32_t word = is_second ? __byte_perm(given, pairs[1], 0x5140) : __byte_perm(pairs[0], given, 0x5140);
  *reinterpret_cast<std::uint32_t*>(row + i / kF8Block * kF8Block + f8_place(static_cast<int>(i % kF8Block) / 16 * 16) +
                                    (i % 8 / 2 + (is_second ? 1 : 0)) * 16) = word;
}

/// Stores columns [i, i + 8) of a row, i a multiple of 8. The two lanes whose columns are those of 16 call it together: each has half
/// of four words.
__device__ __forceinline__ void store_f8(const float (&values)[8], float factor, std::uint8_t* row, std::int64_t i) {
  std::uint32_t pairs[4];
#pragma unroll
  for (int q = 0; q < 4; ++q) pairs[q] = f8_pair(values[2 * q] * factor, values[2 * q + 1] * factor);
  const bool is_second = i % 16 >= 8;  // of the halves
  const std::uint32_t lanes = 0x3u << (threadIdx.x & 30u);
  std::uint8_t* const step = row + i / kF8Block * kF8Block + i % kF8Block / 16 * 4;
#pragma unroll
  for (int q = 0; q < 2; ++q) {
    const std::uint32_t given = __shfl_xor_sync(lanes, is_second ? pairs[q] : pairs[q + 2], 1);
    const std::uint32_t word = is_second ? __byte_perm(given, pairs[q + 2], 0x5140) : __byte_perm(pairs[q], given, 0x5140);
    *reinterpret_cast<std::uint32_t*>(step + (is_second ? q + 2 : q) * 16) = word;
  }
}

/// Stores columns [i, i + 16) of a row, i a multiple of 16. The four lanes whose columns are those of a block call it together: each
/// has a word of every 16 bytes, and they exchange words until each has 16 bytes.
__device__ __forceinline__ void store_f8(const float (&values)[16], float factor, std::uint8_t* row, std::int64_t i) {
  std::uint32_t words[4];
#pragma unroll
  for (int q = 0; q < 4; ++q)
    words[q] = f8_pair(values[2 * q] * factor, values[2 * q + 8] * factor) |
               f8_pair(values[2 * q + 1] * factor, values[2 * q + 9] * factor) << 16;
  const std::uint32_t lanes = 0xfu << (threadIdx.x & 28u);
  const auto step = static_cast<int>(i % kF8Block / 16);
  const auto exchange = [&](std::uint32_t& low, std::uint32_t& high, int distance) {
    const bool is_high = (step & distance) != 0;
    const std::uint32_t given = __shfl_xor_sync(lanes, is_high ? low : high, distance);
    (is_high ? low : high) = given;
  };
  exchange(words[0], words[1], 1);
  exchange(words[2], words[3], 1);
  exchange(words[0], words[2], 2);
  exchange(words[1], words[3], 2);
  *reinterpret_cast<uint4*>(row + i) = {words[0], words[1], words[2], words[3]};
}

/// Threads of a block that rounds a row. They have 16 columns at once and hold some of them until the row's scale is known.
constexpr int kF8RowThreads = 512;
constexpr int kF8RowColumns = 16;
constexpr int kF8RowHeld = 2;

/// Writes a row of `n` columns and its scale, by all threads of a block. `load(i, values)` computes columns
/// [i, i + kF8RowColumns), of long rows twice.
template <class Load>
__device__ __forceinline__ void round_row(std::int64_t n, std::uint8_t* row, float* scale, Load&& load) {
  __shared__ float of_warps[kF8RowThreads / kWarpSize];
  constexpr std::int64_t kStep = kF8RowThreads * kF8RowColumns;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * kF8RowColumns;
  float most = 0;
  const auto load_next = [&](std::int64_t i, float(&values)[kF8RowColumns]) {
    load(i, values);
#pragma unroll
    for (int j = 0; j < kF8RowColumns; ++j) most = fmaxf(most, fabsf(values[j]));
  };
  float held[kF8RowHeld][kF8RowColumns];
#pragma unroll
  for (int h = 0; h < kF8RowHeld; ++h)
    if (first + h * kStep < n) load_next(first + h * kStep, held[h]);
  for (std::int64_t i = first + kF8RowHeld * kStep; i < n; i += kStep) {
    float values[kF8RowColumns];
    load_next(i, values);
  }
  const F8Scale of_row(block_join(most, of_warps, [](float a, float b) { return fmaxf(a, b); }));
  if (threadIdx.x == 0) *scale = of_row.scale;
#pragma unroll
  for (int h = 0; h < kF8RowHeld; ++h)
    if (first + h * kStep < n) store_f8(held[h], of_row.factor, row, first + h * kStep);
  for (std::int64_t i = first + kF8RowHeld * kStep; i < n; i += kStep) {
    float values[kF8RowColumns];
    load(i, values);
    store_f8(values, of_row.factor, row, i);
  }
}

}  // namespace baton::cuda
