/// The chunk kernel with SSE2, which every x86-64 processor has.
#include <emmintrin.h>

#include "kernels/cpu/attention/attention_chunk.h"

namespace baton::cpu {
namespace {

struct Sse2 {
  using V = __m128;
  using I = __m128i;
  static constexpr int kLanes = 4;
  static constexpr int kMaxRows = 4;
  static constexpr int kAccumulators = 8;
  static constexpr float kLeastExponent = -127;  // exponent bits of 0

  static V set(float x) { return _mm_set1_ps(x); }
  static V load(const float* at) { return _mm_load_ps(at); }
  static V broadcast(const float* at) { return _mm_set1_ps(*at); }
  static void store(float* to, V x) { _mm_store_ps(to, x); }
  static V add(V a, V b) { return _mm_add_ps(a, b); }
  static V sub(V a, V b) { return _mm_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm_mul_ps(a, b); }
  static V fma(V a, V b, V c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
  static V div(V a, V b) { return _mm_div_ps(a, b); }
  static V with_sign_of(V sign, V x) { return _mm_or_ps(x, _mm_and_ps(sign, set(-0.0f))); }
  static V max(V a, V b) { return _mm_max_ps(a, b); }
  static V round(V x) { return _mm_cvtepi32_ps(_mm_cvtps_epi32(x)); }
  static V times_power_of_two(V x, V n) {
    const I power = _mm_slli_epi32(_mm_add_epi32(_mm_cvtps_epi32(n), _mm_set1_epi32(127)), 23);
    return _mm_mul_ps(x, _mm_castsi128_ps(power));
  }
  static V keep_between(V x, int lo, int hi) {
    const I lane = _mm_setr_epi32(0, 1, 2, 3);
    const V dropped = _mm_castsi128_ps(
        _mm_or_si128(_mm_cmpgt_epi32(_mm_set1_epi32(lo), lane), _mm_cmpgt_epi32(lane, _mm_set1_epi32(hi - 1))));
    return _mm_or_ps(_mm_andnot_ps(dropped, x), _mm_and_ps(dropped, set(-__builtin_inff())));
  }
  static float reduce_max(V x) {
    const V two = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  static I load_words(const std::byte* at) { return _mm_load_si128(reinterpret_cast<const I*>(at)); }
  static V low_halves(I words) { return _mm_castsi128_ps(_mm_slli_epi32(words, 16)); }
  static V high_halves(I words) { return _mm_castsi128_ps(_mm_and_si128(words, _mm_set1_epi32(-65536))); }
  static V round_to_bf16(V x) {
    const I bits = _mm_castps_si128(x);
    const I odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
    const I rounded = _mm_add_epi32(bits, _mm_add_epi32(odd, _mm_set1_epi32(0x7fff)));
    return _mm_castsi128_ps(_mm_and_si128(rounded, _mm_set1_epi32(-65536)));
  }
};

}  // namespace

const ChunkKernel kF32Baseline{QueryFormat::f32, run_chunk<F32Products<Sse2>>};
const ChunkKernel kBf16Baseline{QueryFormat::bf16_as_f32, run_chunk<Bf16Products<Sse2>>};

}  // namespace baton::cpu
