/// Single weights of a packed matrix, for kernels that need not be the fastest.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/check.h"
#include "kernels/cuda/schemes/scheme_layout.h"

namespace baton::cuda {

/// What a word of a piece (fragment_word) holds at a place: a number, or a code without its zero.
template <WeightScheme kScheme>
__device__ __forceinline__ float code_at(std::uint32_t word, int i, int e) {
  if constexpr (kScheme == WeightScheme::f4) {  // moved to the bits of f32, the number is divided by 2^126
    const std::uint32_t code = code_of_f4(word, i, e);
    return __uint_as_float((code & 8u) << 28 | (code & 7u) << 22) * 0x1p126f;
  }
  word >>= fragment_bit(kScheme, i, e);
  if constexpr (kScheme == WeightScheme::i4) return static_cast<float>(word & 15u);
  if constexpr (kScheme == WeightScheme::i8) return static_cast<float>(word & 255u);
  constexpr float kFactor = 0x1p120f;  // exponent and mantissa become the low exponent bits and the high mantissa bits
  return __uint_as_float((word & 0x80u) << 24 | (word & 0x7fu) << 20) * kFactor;
}

/// A thread's words of a step of a chunk of a tile in wgmma's order, from memory, for each of its two rows. Those of 4 bits are the
/// same.
template <WeightScheme kScheme>
__device__ __forceinline__ void load_step(const std::byte* tile, int chunk, int step, int thread, std::uint32_t (&words)[2]) {
  if constexpr (has_half_bytes(kScheme)) {
    const std::byte* const piece = tile + static_cast<std::int64_t>(chunk) * kPieceBytes;
    words[0] = words[1] = reinterpret_cast<const std::uint32_t*>(piece + thread * 16)[step];
  } else {
    const std::byte* const pair = tile + static_cast<std::int64_t>(chunk / 2) * 2 * kPieceBytes;
    const std::byte* const at = pair + chunk_pair_place(thread) + (chunk % 2 * 2 + step) * 4;
    words[0] = *reinterpret_cast<const std::uint32_t*>(at);
    words[1] = *reinterpret_cast<const std::uint32_t*>(at + kSecondRowBytes);
  }
}
/// What these words hold at a place.
template <WeightScheme kScheme>
__device__ __forceinline__ float code_of_step(const std::uint32_t (&words)[2], int i, int e) {
  return code_at<kScheme>(words[i % 2], has_half_bytes(kScheme) ? i : fragment_of_row(i), e);
}

/// The scale and the zero of a row of a tile, and the group with a column.
__device__ __forceinline__ float scale_at(const SchemeView& weight, std::int64_t tile, int row, int column) {
  const std::int64_t at = (tile * weight.n_groups + (column >> weight.group_shift)) * kSchemeTileRows + row;
  if (weight.scales == nullptr) {
    const float of_row = weight.row_scales[tile * kSchemeTileRows + row];
    if (weight.f4.shift == 0) return of_row;
    return of_row * (__uint_as_float(static_cast<std::uint32_t>(weight.zeros[at]) << weight.f4.shift) * weight.f4.unit);
  }
  switch (weight.scale_dtype) {
    case DType::bf16: return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(weight.scales)[at]);
    case DType::f16: return __half2float(reinterpret_cast<const __half*>(weight.scales)[at]);
    default: return reinterpret_cast<const float*>(weight.scales)[at];
  }
}
template <WeightScheme kScheme>
__device__ __forceinline__ float zero_at(const SchemeView& weight, std::int64_t tile, int row, int column) {
  if constexpr (kScheme == WeightScheme::f8 || kScheme == WeightScheme::f4) return 0;
  if (weight.zeros == nullptr) return kScheme == WeightScheme::i4 ? 8 : 128;
  return weight.zeros[(tile * weight.n_groups + (column >> weight.group_shift)) * kSchemeTileRows + row];
}

/// Calls `body` with the scheme as a constant.
template <class Body>
void visit_scheme(WeightScheme scheme, Body&& body) {
  switch (scheme) {
    case WeightScheme::f8: return body(std::integral_constant<WeightScheme, WeightScheme::f8>{});
    case WeightScheme::i8: return body(std::integral_constant<WeightScheme, WeightScheme::i8>{});
    case WeightScheme::i4: return body(std::integral_constant<WeightScheme, WeightScheme::i4>{});
    case WeightScheme::f4: return body(std::integral_constant<WeightScheme, WeightScheme::f4>{});
    default: check_failed("schemes: a dense weight");
  }
}

}  // namespace baton::cuda
