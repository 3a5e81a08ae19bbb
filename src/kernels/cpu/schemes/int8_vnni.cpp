/// Integers of 8 and 4 bits with AVX-512 VNNI, which multiplies bytes.
#include "kernels/cpu/schemes/int8_kernel.h"

namespace baton::cpu {
namespace {

struct Int8Vnni {
  using Words = __m512i;
  using Weight = __m512i;
  using X = __m512i;
  using Sum = __m512i;
  static constexpr int kLanes = 16;
  static constexpr int kSums = 24;  // of 32 registers
  static constexpr int kMaxRows = 12;

  static Sum zero() { return _mm512_setzero_si512(); }
  static Words load(const std::byte* at) { return _mm512_loadu_si512(at); }
  static Words low_half_bytes(Words bytes) { return _mm512_and_si512(bytes, _mm512_set1_epi8(0x0f)); }
  static Words high_half_bytes(Words bytes) { return low_half_bytes(_mm512_srli_epi16(bytes, 4)); }
  static Weight weight(Words words) { return words; }
  static X broadcast(const std::int8_t* word) {
    std::int32_t bits;
    std::memcpy(&bits, word, sizeof(bits));
    return _mm512_set1_epi32(bits);
  }
  static Sum multiply_add(Sum sum, Weight weight, X x) { return _mm512_dpbusd_epi32(sum, weight, x); }
  static void fold(float* to, Sum sum, const std::int32_t* zeros, std::int32_t x_sum, const float* scales, float x_scale) {
    const __m512i excess = _mm512_mullo_epi32(_mm512_load_si512(zeros), _mm512_set1_epi32(x_sum));
    const __m512 scale = _mm512_mul_ps(_mm512_load_ps(scales), _mm512_set1_ps(x_scale));
    _mm512_storeu_ps(to, _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(sum, excess)), scale, _mm512_loadu_ps(to)));
  }
};

}  // namespace

const Int8Kernels kInt8Vnni = int8_kernels_of<Int8Vnni>("int8_vnni");

}  // namespace baton::cpu
