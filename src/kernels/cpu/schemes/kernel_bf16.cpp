/// bf16 for processors without AVX-512 VBMI: codes of 8 bits are looked up in lanes of 16.
#include "kernels/cpu/schemes/kernel_bf16.h"

namespace baton::cpu {
namespace {

template <class Table>
struct LaneLookups : Table {
  using Products = Bf16Dot;
  static constexpr std::int64_t kBytes = 2 * kPanelColumns;

  template <int V>
  static __m512i word(const std::byte* step) {
    const std::uint16_t* const table = Table::kTable.bits.data();
    const __m512i bytes = _mm512_loadu_si512(step + 64 * (V / 2));
    const __m512i zero = _mm512_setzero_si512();
    const __m512i codes = V % 2 == 0 ? _mm512_unpacklo_epi8(bytes, zero) : _mm512_unpackhi_epi8(bytes, zero);
    const __m512i low = _mm512_permutex2var_epi16(_mm512_load_si512(table), codes, _mm512_load_si512(table + 32));
    const __m512i high = _mm512_permutex2var_epi16(_mm512_load_si512(table + 64), codes, _mm512_load_si512(table + 96));
    const __mmask32 is_high = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(0x40));
    const __m512i sign = _mm512_and_si512(_mm512_slli_epi16(codes, 8), _mm512_set1_epi16(static_cast<std::int16_t>(0x8000)));
    return _mm512_or_si512(_mm512_mask_blend_epi16(is_high, low, high), sign);
  }
};

}  // namespace

const SchemeKernels kSchemeBf16{"bf16", scheme_kernel_of<LaneLookups<F8Table>>(), scheme_kernel_of<LaneLookups<I8Table>>(),
                                scheme_kernel_of<HalfByteLookups<I4Table>>(), scheme_kernel_of<HalfByteLookups<F4Table>>()};

}  // namespace baton::cpu
