/// Weights in 8 and 4 bits with SSE2.
#include "kernels/cpu/schemes/kernel.h"

namespace baton::cpu {
namespace {

/// Four bytes, each in the highest bits of a lane.
__m128i high_bytes(const std::byte* at) {
  std::int32_t bytes;
  std::memcpy(&bytes, at, sizeof(bytes));
  const __m128i zero = _mm_setzero_si128();
  return _mm_unpacklo_epi16(zero, _mm_unpacklo_epi8(zero, _mm_cvtsi32_si128(bytes)));
}

/// The bits of f8, moved to those of f32, are the number divided by 2^120.
struct F8Sse2 : F8Bits {
  using Products = F32Sse2;
  static constexpr float kFactor = 1;
  static constexpr std::int64_t kBytes = kPanelColumns;
  template <int V>
  static __m128 word(const std::byte* step) {
    const __m128i bits = high_bytes(step + 4 * V);
    const __m128i sign = _mm_and_si128(bits, _mm_set1_epi32(static_cast<std::int32_t>(0x80000000)));
    const __m128i magnitude = _mm_srli_epi32(_mm_and_si128(bits, _mm_set1_epi32(0x7f000000)), 4);
    return _mm_mul_ps(_mm_castsi128_ps(_mm_or_si128(sign, magnitude)), _mm_set1_ps(0x1p120f));
  }
};

struct I8Sse2 : I8Bits {
  using Products = F32Sse2;
  static constexpr std::int64_t kBytes = kPanelColumns;
  template <int V>
  static __m128 word(const std::byte* step) {
    return _mm_cvtepi32_ps(_mm_srai_epi32(high_bytes(step + 4 * V), 24));
  }
};

struct I4Sse2 : I4Bits {
  using Products = F32Sse2;
  static constexpr std::int64_t kBytes = kPanelColumns / 2;
  template <int V>
  static __m128 word(const std::byte* step) {
    const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(step + 16 * (V % 2)));
    return _mm_cvtepi32_ps(_mm_srai_epi32(_mm_slli_epi32(both, 28 - 4 * (V / 2)), 28));
  }
};

/// From 1 on, the magnitude is a float whose low bits are these bits.
struct F4Sse2 : F4Bits {
  using Products = F32Sse2;
  static constexpr std::int64_t kBytes = kPanelColumns / 2;
  template <int V>
  static __m128 word(const std::byte* step) {
    const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(step + 16 * (V % 2)));
    const __m128i code = _mm_and_si128(_mm_srli_epi32(both, 4 * (V / 2)), _mm_set1_epi32(7));
    const __m128i one = _mm_set1_epi32(1);
    const __m128i large = _mm_add_epi32(_mm_slli_epi32(code, 22), _mm_castps_si128(_mm_set1_ps(0.5f)));
    const __m128i small = _mm_and_si128(_mm_cmpeq_epi32(code, one), _mm_castps_si128(_mm_set1_ps(0.5f)));
    const __m128i magnitude = _mm_or_si128(_mm_and_si128(_mm_cmpgt_epi32(code, one), large), small);
    const __m128i sign =
        _mm_and_si128(_mm_slli_epi32(both, 28 - 4 * (V / 2)), _mm_set1_epi32(static_cast<std::int32_t>(0x80000000)));
    return _mm_castsi128_ps(_mm_or_si128(magnitude, sign));
  }
};

}  // namespace

const SchemeKernels kSchemeF32Baseline{"f32_baseline", scheme_kernel_of<F8Sse2>(), scheme_kernel_of<I8Sse2>(),
                                       scheme_kernel_of<I4Sse2>(), scheme_kernel_of<F4Sse2>()};

}  // namespace baton::cpu
