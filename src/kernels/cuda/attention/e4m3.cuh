/// The operands of attention's matmuls for e4m3 keys and values: f16, which holds every e4m3 number exactly.
///
/// Queries come as bf16, whose range is wider. A row with a query beyond f16 is multiplied by a power of two first,
/// and its scores by the inverse: both are exact. Queries below 2^-14 lose bits, at most 2^-25 each.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/mma.cuh"

namespace baton::cuda {

/// The two e4m3 numbers in the low 16 bits as a pair of f16; exact, NaN stays NaN.
__device__ __forceinline__ std::uint32_t e4m3_pair_to_half(std::uint32_t bytes) {
  std::uint32_t pair;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<std::uint16_t>(bytes)));
#else
  // The exponent field is shifted and scaled by 2^8. The only NaN code (all ones below the sign) becomes 480.
  const std::uint32_t apart = __byte_perm(bytes, 0, 0x1404);
  const std::uint32_t moved = ((apart >> 1) & 0x3f803f80u) | (apart & 0x80008000u);
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(moved), "r"(0x5c005c00u));
  if ((pair & 0x00007fffu) == 0x00005f80u) pair |= 0x00007e00u;
  if ((pair & 0x7fff0000u) == 0x5f800000u) pair |= 0x7e000000u;
#endif
  return pair;
}

/// Eight e4m3 numbers as f16.
__device__ __forceinline__ uint4 e4m3_eight_to_half(uint2 bytes) {
  return {e4m3_pair_to_half(bytes.x), e4m3_pair_to_half(bytes.x >> 16), e4m3_pair_to_half(bytes.y),
          e4m3_pair_to_half(bytes.y >> 16)};
}

/// What the scores of a thread's two rows are multiplied by, because their queries were scaled; 1 for 16-bit keys.
template <bool kScaled>
struct RowFactors {
  __device__ static constexpr float of(int) { return 1; }
};
template <>
struct RowFactors<true> {
  float factors[2] = {1, 1};
  __device__ __forceinline__ float of(int half) const { return factors[half]; }
};

/// Of a pair of bf16: their bits without the signs.
__device__ __forceinline__ unsigned magnitudes(unsigned pair) { return pair & 0x7fff7fffu; }
__device__ __forceinline__ unsigned largest_magnitude(unsigned pair) { return max(pair & 0xffffu, pair >> 16); }

/// How a row of bf16 becomes f16: if its largest magnitude is beyond f16, it is multiplied by `inverse`, a power of two, and
/// its scores by `factor`.
struct HalfScale {
  float factor = 1;
  float inverse = 1;

  /// `most`: the bits of the row's largest magnitude.
  __device__ __forceinline__ explicit HalfScale(unsigned most) {
    constexpr unsigned kLargest = 0x477f;  // the largest bf16 that f16 can hold
    constexpr unsigned kInfinite = 0x7f80;
    if (most <= kLargest || most >= kInfinite) return;
    const int exponent = static_cast<int>(most >> 7) - (127 + 15);
    factor = __uint_as_float((127u + exponent) << 23);
    inverse = __uint_as_float((127u - exponent) << 23);
  }
  __device__ __forceinline__ std::uint32_t to_half(std::uint32_t pair) const {
    return pack_pair<__half>(__uint_as_float(pair << 16) * inverse, __uint_as_float(pair & 0xffff0000u) * inverse);
  }
};

/// Turns operands A in bf16 to f16. Every warp of the tile passes all k steps of its 16 rows.
template <int kKSteps>
__device__ __forceinline__ RowFactors<true> queries_to_half(std::uint32_t (&a)[kKSteps][4]) {
  HalfScale scales[2] = {HalfScale(0), HalfScale(0)};
  RowFactors<true> rows;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    unsigned pair = 0;
#pragma unroll
    for (int k = 0; k < kKSteps; ++k) pair = __vmaxu2(pair, __vmaxu2(magnitudes(a[k][half]), magnitudes(a[k][half + 2])));
    unsigned most = largest_magnitude(pair);
    most = max(most, __shfl_xor_sync(~0u, most, 1));
    most = max(most, __shfl_xor_sync(~0u, most, 2));
    scales[half] = HalfScale(most);
    rows.factors[half] = scales[half].factor;
  }
#pragma unroll
  for (int k = 0; k < kKSteps; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i) a[k][i] = scales[i % 2].to_half(a[k][i]);
  return rows;
}

}  // namespace baton::cuda
