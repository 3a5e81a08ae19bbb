/// Weights in 8 and 4 bits with AVX-512, in f32.
#include "kernels/cpu/schemes/kernel.h"

namespace baton::cpu {
namespace {

__m128i sixteen_bytes(const std::byte* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }

/// The bits of f8, moved to those of float16, are the number divided by 2^8.
struct F8Avx512 : F8Bits {
  using Products = F32Avx512;
  static constexpr float kFactor = 0x1p8f;
  static constexpr std::int64_t kBytes = kPanelColumns;
  template <int V>
  static __m512 word(const std::byte* step) {
    const __m256i moved = _mm256_slli_epi16(_mm256_cvtepi8_epi16(sixteen_bytes(step + 16 * V)), 7);
    return _mm512_cvtph_ps(_mm256_and_si256(moved, _mm256_set1_epi16(static_cast<std::int16_t>(0xbfff))));
  }
};

struct I8Avx512 : I8Bits {
  using Products = F32Avx512;
  static constexpr std::int64_t kBytes = kPanelColumns;
  template <int V>
  static __m512 word(const std::byte* step) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sixteen_bytes(step + 16 * V)));
  }
};

struct I4Numbers : I4Bits {
  static __m512 numbers() { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1); }
};
struct F4Numbers : F4Bits {
  static __m512 numbers() { return _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6); }
};

/// Numbers of 4 bits, looked up by their code.
template <class Numbers>
struct HalfBytesAvx512 : Numbers {
  using Products = F32Avx512;
  static constexpr std::int64_t kBytes = kPanelColumns / 2;
  /// Both halves of a vector have the same 32 bytes; the upper one takes the next half byte.
  template <int V>
  static __m512 word(const std::byte* step) {
    const __m512i all = _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(step)));
    const __m512i low = _mm512_set1_epi32(8 * V);
    const __m512i shifts = _mm512_mask_add_epi32(low, 0xff00, low, _mm512_set1_epi32(4));
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(all, shifts), Numbers::numbers());
  }
};

}  // namespace

const SchemeKernels kSchemeF32Avx512{"f32_avx512", scheme_kernel_of<F8Avx512>(), scheme_kernel_of<I8Avx512>(),
                                     scheme_kernel_of<HalfBytesAvx512<I4Numbers>>(),
                                     scheme_kernel_of<HalfBytesAvx512<F4Numbers>>()};

}  // namespace baton::cpu
