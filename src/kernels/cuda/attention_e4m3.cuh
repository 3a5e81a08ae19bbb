/// The operands of attention's matmuls for e4m3 keys and values: f16, which holds every e4m3 number exactly.
///
/// Queries come as bf16, whose range is wider. A row with a query beyond f16 is multiplied by a power of two first,
/// and its scores by the inverse: both are exact. Queries below 2^-14 lose bits, at most 2^-25 each.
#pragma once

#include <cstdint>

#include "kernels/cuda/mma.cuh"

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

/// Turns operands A in bf16 to f16. Every warp of the tile passes all k steps of its 16 rows.
template <int kKSteps>
__device__ __forceinline__ RowFactors<true> queries_to_half(std::uint32_t (&a)[kKSteps][4]) {
  constexpr unsigned kLargest = 0x477f;  // the largest bf16 that f16 can hold
  constexpr unsigned kInfinite = 0x7f80;
  unsigned most[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    unsigned pair = 0;
#pragma unroll
    for (int k = 0; k < kKSteps; ++k) pair = __vmaxu2(pair, __vmaxu2(a[k][half] & 0x7fff7fffu, a[k][half + 2] & 0x7fff7fffu));
    most[half] = max(pair & 0xffffu, pair >> 16);
    most[half] = max(most[half], __shfl_xor_sync(~0u, most[half], 1));
    most[half] = max(most[half], __shfl_xor_sync(~0u, most[half], 2));
  }
  RowFactors<true> rows;
  float inverse[2] = {1, 1};
  if (__any_sync(~0u, most[0] > kLargest || most[1] > kLargest)) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (most[half] <= kLargest || most[half] >= kInfinite) continue;
      const int exponent = static_cast<int>(most[half] >> 7) - (127 + 15);
      rows.factors[half] = __uint_as_float((127u + exponent) << 23);
      inverse[half] = __uint_as_float((127u - exponent) << 23);
    }
  }
#pragma unroll
  for (int k = 0; k < kKSteps; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[k][i] = pack_pair<__half>(__uint_as_float(a[k][i] << 16) * inverse[i % 2],
                                  __uint_as_float(a[k][i] & 0xffff0000u) * inverse[i % 2]);
  return rows;
}

}  // namespace baton::cuda
