/// Weights in 8 and 4 bits with AVX2, FMA and F16C.
#include "kernels/cpu/schemes/kernel.h"

namespace baton::cpu {
namespace {

__m128i eight_bytes(const std::byte* at) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)); }

/// The bits of f8, moved to those of float16, are the number divided by 2^8.
struct F8Avx2 : F8Bits {
  using Products = F32Avx2;
  static constexpr float kFactor = 0x1p8f;
  static constexpr std::int64_t kBytes = kPanelColumns;
  template <int V>
  static __m256 word(const std::byte* step) {
    const __m128i moved = _mm_slli_epi16(_mm_cvtepi8_epi16(eight_bytes(step + 8 * V)), 7);
    return _mm256_cvtph_ps(_mm_and_si128(moved, _mm_set1_epi16(static_cast<std::int16_t>(0xbfff))));
  }
};

struct I8Avx2 : I8Bits {
  using Products = F32Avx2;
  static constexpr std::int64_t kBytes = kPanelColumns;
  template <int V>
  static __m256 word(const std::byte* step) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight_bytes(step + 8 * V)));
  }
};

struct I4Avx2 : I4Bits {
  using Products = F32Avx2;
  static constexpr std::int64_t kBytes = kPanelColumns / 2;
  template <int V>
  static __m256 word(const std::byte* step) {
    const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(step));
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(all, 28 - 4 * V), 28));
  }
};

/// A look-up takes the low three bits of a lane.
struct F4Avx2 : F4Bits {
  using Products = F32Avx2;
  static constexpr std::int64_t kBytes = kPanelColumns / 2;
  template <int V>
  static __m256 word(const std::byte* step) {
    const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(step));
    const __m256 magnitude =
        _mm256_permutevar8x32_ps(_mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6), _mm256_srli_epi32(all, 4 * V));
    return _mm256_or_ps(magnitude,
                        _mm256_and_ps(_mm256_castsi256_ps(_mm256_slli_epi32(all, 28 - 4 * V)), _mm256_set1_ps(-0.0f)));
  }
};

}  // namespace

const SchemeKernels kSchemeF32Avx2{"f32_avx2", scheme_kernel_of<F8Avx2>(), scheme_kernel_of<I8Avx2>(),
                                   scheme_kernel_of<I4Avx2>(), scheme_kernel_of<F4Avx2>()};

}  // namespace baton::cpu
