/// Integers of 8 and 4 bits with AVX2: multiplied as 16 bits, the even and the odd bytes apart.
#include "kernels/cpu/schemes/int8_kernel.h"

namespace baton::cpu {
namespace {

struct Int8Avx2 {
  struct Halves {
    __m256i even, odd;
  };
  using Words = __m256i;
  using Weight = Halves;
  using X = Halves;
  using Sum = __m256i;
  static constexpr int kLanes = 8;
  static constexpr int kSums = 8;  // of 16 registers
  static constexpr int kMaxRows = 4;

  static Sum zero() { return _mm256_setzero_si256(); }
  static Words load(const std::byte* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }
  static Words low_half_bytes(Words bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(0x0f)); }
  static Words high_half_bytes(Words bytes) { return low_half_bytes(_mm256_srli_epi16(bytes, 4)); }
  static Weight weight(Words words) { return {_mm256_and_si256(words, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(words, 8)}; }
  static X broadcast(const std::int8_t* word) {
    std::int32_t bits;
    std::memcpy(&bits, word, sizeof(bits));
    const __m256i all = _mm256_set1_epi32(bits);
    return {_mm256_srai_epi16(_mm256_slli_epi16(all, 8), 8), _mm256_srai_epi16(all, 8)};
  }
  static Sum multiply_add(Sum sum, Weight weight, X x) {
    const __m256i even = _mm256_madd_epi16(weight.even, x.even);
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, _mm256_madd_epi16(weight.odd, x.odd)));
  }
  static void fold(float* to, Sum sum, const std::int32_t* zeros, std::int32_t x_sum, const float* scales, float x_scale) {
    const __m256i of_zeros = _mm256_load_si256(reinterpret_cast<const __m256i*>(zeros));
    const __m256i excess = _mm256_mullo_epi32(of_zeros, _mm256_set1_epi32(x_sum));
    const __m256 scale = _mm256_mul_ps(_mm256_load_ps(scales), _mm256_set1_ps(x_scale));
    _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(sum, excess)), scale, _mm256_loadu_ps(to)));
  }
};

}  // namespace

const Int8Kernels kInt8Avx2 = int8_kernels_of<Int8Avx2>("int8_avx2");

}  // namespace baton::cpu
