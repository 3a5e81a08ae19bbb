/// Weights in 8 and 4 bits with AVX-512's bf16 dot products: bits are looked up in tables of bf16 in registers.
/// Included only by files compiled for them.
#pragma once

#include <bit>

#include "kernels/cpu/schemes/kernel.h"

namespace baton::cpu {
namespace {

/// bf16 for each of 128 codes without their sign.
struct CodeTable {
  alignas(64) std::array<std::uint16_t, 128> bits;
};

/// Of a number that bf16 holds exactly.
constexpr std::uint16_t exact_bf16(float number) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(number) >> 16);
}

/// Values of f8_e4m3; the code of NaN does not occur.
constexpr CodeTable f8_table() {
  CodeTable table{};
  for (std::uint32_t code = 0; code < 128; ++code) {
    const std::uint32_t exponent = code / 8;
    float number = static_cast<float>(exponent == 0 ? code % 8 : 8 + code % 8) * 0x1p-9f;
    for (std::uint32_t i = 1; i < exponent; ++i) number *= 2;
    table.bits[code] = exact_bf16(number);
  }
  return table;
}

constexpr CodeTable i8_table() {
  CodeTable table{};
  for (std::uint32_t code = 0; code < 128; ++code) table.bits[code] = exact_bf16(static_cast<float>(code) + 0.5f);
  return table;
}

/// Half bytes, each twice: a look-up takes the low five bits of a lane. Those of i4 are in two's complement.
constexpr CodeTable i4_table() {
  CodeTable table{};
  for (int code = 0; code < 32; ++code)
    table.bits[static_cast<std::size_t>(code)] = exact_bf16(static_cast<float>(code % 16 < 8 ? code % 16 : code % 16 - 16));
  return table;
}
constexpr CodeTable f4_table() {
  CodeTable table{};
  for (std::uint32_t code = 0; code < 32; ++code) table.bits[code] = exact_bf16(f4_value(code % 16));
  return table;
}

struct F8Table : F8Bits {
  static constexpr float kFactor = 1;
  static constexpr CodeTable kTable = f8_table();
};

struct I8Table {
  static constexpr float kFactor = 1;
  static constexpr float kMiddle = 127.5f;
  static constexpr float kDefaultZero = 128;
  static constexpr CodeTable kTable = i8_table();
};

struct I4Table : I4Bits {
  static constexpr CodeTable kTable = i4_table();
};

struct F4Table : F4Bits {
  static constexpr CodeTable kTable = f4_table();
};

template <class Table>
struct HalfByteLookups : Table {
  using Products = Bf16Dot;
  static constexpr std::int64_t kBytes = kPanelColumns;

  template <int V>
  static __m512i word(const std::byte* step) {
    return _mm512_permutexvar_epi16(_mm512_srli_epi16(_mm512_loadu_si512(step), 4 * V),
                                    _mm512_load_si512(Table::kTable.bits.data()));
  }
};

}  // namespace
}  // namespace baton::cpu
