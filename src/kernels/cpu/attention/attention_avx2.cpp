/// The chunk kernel with AVX2 and FMA.
#include <immintrin.h>

#include "kernels/cpu/attention/attention_chunk.h"

namespace baton::cpu {
namespace {

struct Avx2 {
  using V = __m256;
  using I = __m256i;
  static constexpr int kLanes = 8;
  static constexpr int kMaxRows = 4;
  static constexpr int kAccumulators = 8;
  static constexpr float kLeastExponent = -127;  // exponent bits of 0

  static V set(float x) { return _mm256_set1_ps(x); }
  static V load(const float* at) { return _mm256_load_ps(at); }
  static V broadcast(const float* at) { return _mm256_broadcast_ss(at); }
  static void store(float* to, V x) { _mm256_store_ps(to, x); }
  static V add(V a, V b) { return _mm256_add_ps(a, b); }
  static V sub(V a, V b) { return _mm256_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static V div(V a, V b) { return _mm256_div_ps(a, b); }
  static V with_sign_of(V sign, V x) { return _mm256_or_ps(x, _mm256_and_ps(sign, set(-0.0f))); }
  static V max(V a, V b) { return _mm256_max_ps(a, b); }
  static V round(V x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static V times_power_of_two(V x, V n) {
    const I power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(x, _mm256_castsi256_ps(power));
  }
  static V keep_between(V x, int lo, int hi) {
    const I lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const I dropped =
        _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(lo), lane), _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(hi - 1)));
    return _mm256_blendv_ps(x, set(-__builtin_inff()), _mm256_castsi256_ps(dropped));
  }
  static float reduce_max(V x) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  static I load_words(const std::byte* at) { return _mm256_load_si256(reinterpret_cast<const I*>(at)); }
  static V low_halves(I words) { return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16)); }
  static V high_halves(I words) { return _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(-65536))); }
  static V round_to_bf16(V x) {
    const I bits = _mm256_castps_si256(x);
    const I odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const I rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    return _mm256_castsi256_ps(_mm256_and_si256(rounded, _mm256_set1_epi32(-65536)));
  }
};

}  // namespace

const ChunkKernel kF32Avx2{QueryFormat::f32, run_chunk<F32Products<Avx2>>};
const ChunkKernel kBf16Avx2{QueryFormat::bf16_as_f32, run_chunk<Bf16Products<Avx2>>};

}  // namespace baton::cpu
