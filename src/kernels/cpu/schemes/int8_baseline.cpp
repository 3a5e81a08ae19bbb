/// Integers of 8 and 4 bits with SSE2: multiplied as 16 bits, the even and the odd bytes apart.
#include "kernels/cpu/schemes/int8_kernel.h"

namespace baton::cpu {
namespace {

struct Int8Sse2 {
  struct Halves {
    __m128i even, odd;
  };
  using Words = __m128i;
  using Weight = Halves;
  using X = Halves;
  using Sum = __m128i;
  static constexpr int kLanes = 4;
  static constexpr int kSums = 8;  // of 16 registers
  static constexpr int kMaxRows = 4;

  static Sum zero() { return _mm_setzero_si128(); }
  static Words load(const std::byte* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }
  static Words low_half_bytes(Words bytes) { return _mm_and_si128(bytes, _mm_set1_epi8(0x0f)); }
  static Words high_half_bytes(Words bytes) { return low_half_bytes(_mm_srli_epi16(bytes, 4)); }
  static Weight weight(Words words) { return {_mm_and_si128(words, _mm_set1_epi16(0xff)), _mm_srli_epi16(words, 8)}; }
  static X broadcast(const std::int8_t* word) {
    std::int32_t bits;
    std::memcpy(&bits, word, sizeof(bits));
    const __m128i all = _mm_set1_epi32(bits);
    return {_mm_srai_epi16(_mm_slli_epi16(all, 8), 8), _mm_srai_epi16(all, 8)};
  }
  static Sum multiply_add(Sum sum, Weight weight, X x) {
    return _mm_add_epi32(sum, _mm_add_epi32(_mm_madd_epi16(weight.even, x.even), _mm_madd_epi16(weight.odd, x.odd)));
  }
  static void fold(float* to, Sum sum, const std::int32_t* zeros, std::int32_t x_sum, const float* scales, float x_scale) {
    alignas(16) std::array<std::int32_t, kLanes> numbers;
    _mm_store_si128(reinterpret_cast<__m128i*>(numbers.data()), sum);
    for (std::size_t i = 0; i < kLanes; ++i) to[i] += static_cast<float>(numbers[i] - zeros[i] * x_sum) * (scales[i] * x_scale);
  }
};

}  // namespace

const Int8Kernels kInt8Baseline = int8_kernels_of<Int8Sse2>("int8_baseline");

}  // namespace baton::cpu
