/// AVX-512 for the chunk kernel. Included only by files compiled for it.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace baton::cpu {
namespace {

struct Avx512 {
  using V = __m512;
  using I = __m512i;
  static constexpr int kLanes = 16;
  static constexpr int kMaxRows = 8;
  static constexpr int kAccumulators = 16;
  static constexpr float kLeastExponent = -200;  // 2 to this power is 0

  static V set(float x) { return _mm512_set1_ps(x); }
  static V load(const float* at) { return _mm512_load_ps(at); }
  static V broadcast(const float* at) { return _mm512_set1_ps(*at); }
  static void store(float* to, V x) { _mm512_store_ps(to, x); }
  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static V div(V a, V b) { return _mm512_div_ps(a, b); }
  static V with_sign_of(V sign, V x) { return _mm512_or_ps(x, _mm512_and_ps(sign, set(-0.0f))); }
  static V max(V a, V b) { return _mm512_max_ps(a, b); }
  static V round(V x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static V times_power_of_two(V x, V n) { return _mm512_scalef_ps(x, n); }
  static V keep_between(V x, int lo, int hi) {
    const I lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __mmask16 kept =
        _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(lo)) & _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(hi));
    return _mm512_mask_blend_ps(kept, set(-__builtin_inff()), x);
  }
  static float reduce_max(V x) {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  static I load_words(const std::byte* at) { return _mm512_load_si512(at); }
  static V low_halves(I words) { return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)); }
  static V high_halves(I words) { return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-65536))); }
  static V round_to_bf16(V x) {
    const I bits = _mm512_castps_si512(x);
    const I odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const I rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_castsi512_ps(_mm512_and_si512(rounded, _mm512_set1_epi32(-65536)));
  }
};

}  // namespace
}  // namespace baton::cpu
