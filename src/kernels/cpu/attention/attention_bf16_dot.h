/// AVX-512's bf16 dot products for the chunk kernels. Included only by files compiled for them.
#pragma once

#include "kernels/cpu/simd_avx512.h"

namespace baton::cpu {
namespace {

/// One step is a vdpbf16ps: it adds two exact products of bf16 values to an f32 sum, for a pair of the row and a pair
/// of the storage.
struct Bf16DotProducts {
  using Simd = Avx512;
  static constexpr int kPerWord = 2;
  static constexpr int kRowBytes = 4;
  using V = __m512;
  using B = __m512i;
  static B load(const std::byte* at) { return _mm512_load_si512(at); }
  static V step(V sum, const std::byte* row, B b) {
    const __m512i pair = _mm512_set1_epi32(*reinterpret_cast<const std::int32_t*>(row));
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(pair), reinterpret_cast<__m512bh>(b));
  }
  static constexpr int kWeightBytes = 2;
  static constexpr int kWeightVectors = 2;
  static V store_weights(std::byte* to, const V (&p)[2], V sum) {
    const __m512bh rounded = _mm512_cvtne2ps_pbh(p[1], p[0]);
    _mm512_store_si512(to, reinterpret_cast<__m512i>(rounded));
    return _mm512_dpbf16_ps(sum, rounded, reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f80)));
  }
};

}  // namespace
}  // namespace baton::cpu
