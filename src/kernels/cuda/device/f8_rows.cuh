/// Writes rows in 8 bits: see kernels/ops.h.
#pragma once

#include <cstdint>

#include <cuda_fp8.h>

#include "kernels/cuda/device/f8_rows.h"

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

/// Stores columns [i, i + 4) of a row, i a multiple of 4.
__device__ __forceinline__ void store_f8(const float (&values)[4], float factor, std::uint8_t* row, std::int64_t i) {
  auto* const group = reinterpret_cast<std::uint16_t*>(row + i / 16 * 16);
  const auto first = static_cast<int>(i % 16);
  group[f8_place(first) / 2] = static_cast<std::uint16_t>(f8_pair(values[0] * factor, values[1] * factor));
  group[f8_place(first + 2) / 2] = static_cast<std::uint16_t>(f8_pair(values[2] * factor, values[3] * factor));
}

/// Stores columns [i, i + 16) of a row, i a multiple of 16.
__device__ __forceinline__ void store_f8(const float (&values)[16], float factor, std::uint8_t* row, std::int64_t i) {
  std::uint32_t words[4] = {};
#pragma unroll
  for (int c = 0; c < 16; c += 2)
    words[f8_place(c) / 4] |= f8_pair(values[c] * factor, values[c + 1] * factor) << (f8_place(c) % 4 * 8);
  *reinterpret_cast<uint4*>(row + i) = {words[0], words[1], words[2], words[3]};
}

}  // namespace baton::cuda
