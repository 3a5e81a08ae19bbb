/// Weights of 8 and 4 bits become 16-bit floats in registers, exactly and by arithmetic alone.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/schemes/scheme_layout.h"

namespace baton::cuda {

template <class T>
__device__ __forceinline__ std::uint32_t times(std::uint32_t pair, std::uint32_t factor) {
  std::uint32_t product;
  if constexpr (std::is_same_v<T, __half>)
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(factor));
  else
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900  // which has no other arithmetic in pairs of bf16
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(pair), "r"(factor), "r"(0x80008000u));
#else
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(factor));
#endif
  return product;
}
template <class T>
__device__ __forceinline__ std::uint32_t minus(std::uint32_t pair, std::uint32_t other) {
  std::uint32_t difference;
  if constexpr (std::is_same_v<T, __half>)
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(pair), "r"(other));
  else
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(difference) : "r"(other), "r"(0xbf80bf80u), "r"(pair));
#else
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(difference) : "r"(pair), "r"(other));
#endif
  return difference;
}
/// (word & mask) | bits as one instruction.
__device__ __forceinline__ std::uint32_t masked_or(std::uint32_t word, std::uint32_t mask, std::uint32_t bits) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
  return result;
}

/// What is subtracted from a code whose bits were put into a float that counts by ones: that float, plus the zero. For
/// 8 bits to bf16 the float is an f32, which has room for them; otherwise a pair of T.
template <class T, WeightScheme kScheme>
__device__ __forceinline__ std::uint32_t offset_of(std::uint32_t zero) {
  static_assert(kScheme != WeightScheme::f4, "numbers of f4 are scaled by F4Scales");
  if constexpr (kScheme == WeightScheme::i8 && !std::is_same_v<T, __half>) return 0x4b000000u + zero;
  return (std::is_same_v<T, __half> ? 0x64006400u : 0x43004300u) + zero * 0x10001u;
}

/// Pair i of a word of f4: its bits become those of floats that are the numbers times 2^-126 (bf16) or 2^-14 (f16).
template <class T, int i>
__device__ __forceinline__ std::uint32_t f4_bits(std::uint32_t word) {
  constexpr std::uint32_t kSign = 0x80008000u;
  if constexpr (std::is_same_v<T, __half>) {
    if constexpr (i < 3) return ((word << (3 * i)) & kSign) | ((word << (3 + 3 * i)) & 0x0e000e00u);
    return ((word << 5) & kSign) | ((word >> 3) & 0x0c000c00u) | ((word >> 2) & 0x02000200u);
  } else {
    if constexpr (i < 3) return (word << (3 * i)) & (kSign | 0x01c001c0u);
    return ((word << 5) & kSign) | ((word >> 6) & 0x01800180u) | ((word >> 5) & 0x00400040u);
  }
}

/// What this thread of a warpgroup has of some chunks in wgmma's order, from shared memory: of 8 bits a step's words of both
/// rows one after the other.
template <WeightScheme kScheme, int kChunks>
__device__ __forceinline__ void load_chunks(std::uint32_t pieces, int thread, uint4 (&raw)[kChunks]) {
  if constexpr (has_half_bytes(kScheme)) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) raw[c] = load_shared(pieces + c * kPieceBytes + thread * 16);
  } else {
    static_assert(kChunks % 2 == 0);
#pragma unroll
    for (int c = 0; c < kChunks; c += 2) {
      const std::uint32_t at = pieces + c * kPieceBytes + chunk_pair_place(thread);
      const uint4 first = load_shared(at);
      const uint4 second = load_shared(at + kSecondRowBytes);
      raw[c] = {first.x, second.x, first.y, second.y};
      raw[c + 1] = {first.z, second.z, first.w, second.w};
    }
  }
}

/// The fragments of a chunk's steps from a thread's 16 bytes. `offsets`: of integers, for each part of the steps and
/// for both rows of the thread; of f4, scales that F4Scales makes pairs of T.
template <class T, WeightScheme kScheme, PieceOrder kOrder = PieceOrder::lanes, int kSteps, int kParts>
__device__ __forceinline__ void widen(const uint4& raw, const std::uint32_t (&offsets)[kParts][2],
                                      std::uint32_t (&a)[kSteps][4]) {
  constexpr bool is_half = std::is_same_v<T, __half>;
  const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  if constexpr (kScheme == WeightScheme::i4) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[step][i] = minus<T>(masked_or(words[step] >> (4 * i), 0x000f000fu, is_half ? 0x64006400u : 0x43004300u),
                              offsets[step * kParts / kSteps][i % 2]);
  } else if constexpr (kScheme == WeightScheme::f4) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const std::uint32_t(&scales)[2] = offsets[step * kParts / kSteps];
      a[step][0] = times<T>(f4_bits<T, 0>(words[step]), scales[0]);
      a[step][1] = times<T>(f4_bits<T, 1>(words[step]), scales[1]);
      a[step][2] = times<T>(f4_bits<T, 2>(words[step]), scales[0]);
      a[step][3] = times<T>(f4_bits<T, 3>(words[step]), scales[1]);
    }
  } else {
    constexpr bool has_rows = kOrder == PieceOrder::wgmma;  // each word is of a row, and else of half of a step
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t w = words[i];
#pragma unroll
      for (int byte = 0; byte < 2; ++byte) {  // and the second one after it
        const int row = has_rows ? i % 2 : byte;
        std::uint32_t& to = a[i / 2][has_rows ? byte * 2 + row : i % 2 * 2 + row];
        if constexpr (kScheme == WeightScheme::f8 && is_half) {
          // Exponent and mantissa become the low exponent bits and the high mantissa bits: the number times 2^-8.
          const std::uint32_t signs = byte == 0 ? w << 8 : w;
          to = times<T>((signs & 0x80008000u) | ((byte == 0 ? w << 7 : w >> 1) & 0x3f803f80u), 0x5c005c00u);
        } else if constexpr (kScheme == WeightScheme::f8) {  // the number times 2^-120
          const std::uint32_t signs = byte == 0 ? w << 8 : w;
          to = times<T>((signs & 0x80008000u) | ((byte == 0 ? w << 4 : w >> 4) & 0x07f007f0u), 0x7b807b80u);
        } else if constexpr (is_half) {
          to = minus<T>(__byte_perm(w, 0x64646464u, byte == 0 ? 0x4240 : 0x4341), offsets[0][row]);
        } else {
          const float offset = __uint_as_float(offsets[0][row]);
          const float first = __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7440 + byte)) - offset;
          const float second = __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7442 + byte)) - offset;
          to = __byte_perm(__float_as_uint(first), __float_as_uint(second), 0x7632);  // exact: both have 8 bits
        }
      }
    }
  }
}

}  // namespace baton::cuda
