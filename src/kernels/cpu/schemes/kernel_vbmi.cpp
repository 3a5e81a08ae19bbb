/// bf16 with AVX-512 VBMI: both bytes of a number are looked up by its code.
#include "kernels/cpu/schemes/kernel_bf16.h"

namespace baton::cpu {
namespace {

/// One byte of each number of a table.
struct ByteTable {
  alignas(64) std::array<std::uint8_t, 128> bytes;
};

constexpr ByteTable bytes_of(const CodeTable& table, int shift) {
  ByteTable made{};
  for (std::size_t i = 0; i < table.bits.size(); ++i) made.bytes[i] = static_cast<std::uint8_t>(table.bits[i] >> shift);
  return made;
}

template <class Table>
struct ByteLookups : Table {
  using Products = Bf16Dot;
  static constexpr std::int64_t kBytes = 2 * kPanelColumns;
  static constexpr ByteTable kLow = bytes_of(Table::kTable, 0);
  static constexpr ByteTable kHigh = bytes_of(Table::kTable, 8);

  static __m512i look_up(const ByteTable& table, __m512i codes) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table.bytes.data()), codes, _mm512_load_si512(table.bytes.data() + 64));
  }

  template <int V>
  static __m512i word(const std::byte* step) {
    const __m512i codes = _mm512_loadu_si512(step + 64 * (V / 2));
    const __m512i low = look_up(kLow, codes);
    constexpr int kOrOfAnd = 0xf8;
    const __m512i high =
        _mm512_ternarylogic_epi32(look_up(kHigh, codes), codes, _mm512_set1_epi8(static_cast<char>(0x80)), kOrOfAnd);
    return V % 2 == 0 ? _mm512_unpacklo_epi8(low, high) : _mm512_unpackhi_epi8(low, high);
  }
};

}  // namespace

const SchemeKernels kSchemeBf16Vbmi{"bf16_vbmi", scheme_kernel_of<ByteLookups<F8Table>>(),
                                    scheme_kernel_of<ByteLookups<I8Table>>(), scheme_kernel_of<HalfByteLookups<I4Table>>(),
                                    scheme_kernel_of<HalfByteLookups<F4Table>>()};

}  // namespace baton::cpu
