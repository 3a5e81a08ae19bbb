/// Writes panels from rows of 8 and 4 bits, 64 rows of 64 bytes at a time, with SSE2 alone: memory is the limit.
#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/check.h"
#include "kernels/cpu/schemes/panels.h"

namespace baton::cpu {
namespace {

/// Bytes of a row that are taken at once: a line of the cache.
constexpr std::int64_t kChunkBytes = 64;

/// A byte of each of a panel's columns.
struct ColumnBytes {
  alignas(64) std::array<std::uint8_t, kPanelColumns> bytes;

  /// Columns 16 j to 16 j + 15.
  __m128i part(int j) const { return _mm_load_si128(reinterpret_cast<const __m128i*>(bytes.data() + 16 * j)); }
};

void store16(std::byte* to, __m128i bytes) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes); }

__m128i low_half_bytes(__m128i bytes) { return _mm_and_si128(bytes, _mm_set1_epi8(0x0f)); }
__m128i high_half_bytes(__m128i bytes) { return low_half_bytes(_mm_srli_epi16(bytes, 4)); }
/// Half bytes in bytes: `low` and, above it, `high`.
__m128i half_bytes(__m128i low, __m128i high) { return _mm_or_si128(low, _mm_slli_epi16(high, 4)); }
/// Inverts bits of each byte. 0x88 subtracts 8 from each half byte: two's complement.
__m128i flipped(__m128i bytes, std::uint8_t flip) { return _mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(flip))); }
constexpr std::uint8_t kLess8 = 0x88;

/// Byte i of 16 rows, `stride` bytes apart, as bytes [first, first + 16) of columns[i], for 16 i.
void transpose_bytes(const std::uint8_t* rows, std::int64_t stride, std::size_t first, ColumnBytes* columns) {
  __m128i even[16], odd[16];
  for (std::size_t i = 0; i < 16; ++i)
    even[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + static_cast<std::int64_t>(i) * stride));
  // Each pass moves the highest bit of a byte's place (row, column) to its lowest; four passes exchange the two.
  const auto pass = [](const __m128i* from, __m128i* to) {
    for (std::size_t i = 0; i < 8; ++i) {
      to[2 * i] = _mm_unpacklo_epi8(from[i], from[i + 8]);
      to[2 * i + 1] = _mm_unpackhi_epi8(from[i], from[i + 8]);
    }
  };
  pass(even, odd);
  pass(odd, even);
  pass(even, odd);
  pass(odd, even);
  for (std::size_t i = 0; i < 16; ++i) _mm_store_si128(reinterpret_cast<__m128i*>(columns[i].bytes.data() + first), even[i]);
}

/// One function for each order of panels.h: writes the steps that `columns` [n_columns] holds, at most n_steps.
void write_bytes_f32(const ColumnBytes* columns, std::uint8_t flip, std::int64_t n_steps, std::byte* step) {
  for (std::int64_t i = 0; i < n_steps; ++i, step += kPanelColumns)
    for (int j = 0; j < 4; ++j) store16(step + 16 * j, flipped(columns[i].part(j), flip));
}

/// The code of a byte of i8: those below the middle count down from it.
__m128i i8_code(__m128i bytes) {
  const __m128i signed_bytes = _mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(0x80)));
  const __m128i is_negative = _mm_cmpgt_epi8(_mm_setzero_si128(), signed_bytes);
  return _mm_xor_si128(signed_bytes, _mm_and_si128(is_negative, _mm_set1_epi8(0x7f)));
}

template <bool kIsI8>
void write_bytes_bf16(const ColumnBytes* columns, std::int64_t n_steps, std::byte* step) {
  const auto code = [](__m128i bytes) { return kIsI8 ? i8_code(bytes) : bytes; };
  for (std::int64_t i = 0; i < n_steps; ++i, columns += 2)
    for (int t = 0; t < 2; ++t, step += kPanelColumns) {
      const __m128i first_0 = code(columns[0].part(2 * t)), first_1 = code(columns[1].part(2 * t));
      const __m128i next_0 = code(columns[0].part(2 * t + 1)), next_1 = code(columns[1].part(2 * t + 1));
      const __m128i first_low = _mm_unpacklo_epi8(first_0, first_1), first_high = _mm_unpackhi_epi8(first_0, first_1);
      const __m128i next_low = _mm_unpacklo_epi8(next_0, next_1), next_high = _mm_unpackhi_epi8(next_0, next_1);
      store16(step, _mm_unpacklo_epi64(first_low, next_low));
      store16(step + 16, _mm_unpackhi_epi64(first_low, next_low));
      store16(step + 32, _mm_unpacklo_epi64(first_high, next_high));
      store16(step + 48, _mm_unpackhi_epi64(first_high, next_high));
    }
}

/// A byte holds the values of two steps.
void write_half_bytes_f32(const ColumnBytes* columns, std::uint8_t flip, std::int64_t n_steps, std::byte* step) {
  constexpr std::int64_t kBytes = kPanelColumns / 2;
  for (std::int64_t i = 0; i < n_steps; ++i, step += kBytes) {
    __m128i parts[4];
    for (int j = 0; j < 4; ++j) {
      const __m128i both = columns[i / 2].part(j);
      const __m128i values = i % 2 == 0 ? low_half_bytes(both) : high_half_bytes(both);
      parts[j] = flipped(half_bytes(values, _mm_srli_si128(values, 8)), flip);
    }
    const __m128i low = _mm_unpacklo_epi8(parts[0], parts[1]);
    const __m128i high = _mm_unpacklo_epi8(parts[2], parts[3]);
    store16(step, _mm_unpacklo_epi16(low, high));
    store16(step + 16, _mm_unpackhi_epi16(low, high));
  }
}

/// A byte holds the two values of a step.
void write_half_bytes_bf16(const ColumnBytes* columns, std::uint8_t flip, std::int64_t n_steps, std::byte* step) {
  for (std::int64_t i = 0; i < n_steps; ++i, step += kPanelColumns) {
    const auto part = [&](int j) { return flipped(columns[i].part(j), flip); };
    const auto lows = [&](int j) { return half_bytes(low_half_bytes(part(j)), low_half_bytes(part(j + 1))); };
    const auto highs = [&](int j) { return half_bytes(high_half_bytes(part(j)), high_half_bytes(part(j + 1))); };
    const __m128i v0_01 = lows(0), v0_23 = lows(2), v1_01 = highs(0), v1_23 = highs(2);
    const __m128i v0_low = _mm_unpacklo_epi8(v0_01, v0_23), v0_high = _mm_unpackhi_epi8(v0_01, v0_23);
    const __m128i v1_low = _mm_unpacklo_epi8(v1_01, v1_23), v1_high = _mm_unpackhi_epi8(v1_01, v1_23);
    store16(step, _mm_unpacklo_epi16(v0_low, v1_low));
    store16(step + 16, _mm_unpackhi_epi16(v0_low, v1_low));
    store16(step + 32, _mm_unpacklo_epi16(v0_high, v1_high));
    store16(step + 48, _mm_unpackhi_epi16(v0_high, v1_high));
  }
}

void write_steps(const ColumnBytes* columns, WeightScheme scheme, bool is_bf16, std::int64_t n_steps, std::byte* step) {
  switch (scheme) {
    case WeightScheme::f8:
      return is_bf16 ? write_bytes_bf16<false>(columns, n_steps, step) : write_bytes_f32(columns, 0, n_steps, step);
    case WeightScheme::i8:
      return is_bf16 ? write_bytes_bf16<true>(columns, n_steps, step) : write_bytes_f32(columns, 0x80, n_steps, step);
    case WeightScheme::i4:
      return is_bf16 ? write_half_bytes_bf16(columns, kLess8, n_steps, step)
                     : write_half_bytes_f32(columns, kLess8, n_steps, step);
    case WeightScheme::f4:
      return is_bf16 ? write_half_bytes_bf16(columns, 0, n_steps, step) : write_half_bytes_f32(columns, 0, n_steps, step);
    case WeightScheme::dense: break;
  }
  check_failed("pack_panel: dense weights have other panels");
}

/// The next four bytes of each of 4 rows of a chunk, beginning at a row, for four words: words[i] has word i of each row.
void transpose_words(const std::uint8_t* rows, __m128i* words) {
  __m128i row[4];
  for (std::int64_t i = 0; i < 4; ++i) row[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + i * kChunkBytes));
  const __m128i low_01 = _mm_unpacklo_epi32(row[0], row[1]), low_23 = _mm_unpacklo_epi32(row[2], row[3]);
  const __m128i high_01 = _mm_unpackhi_epi32(row[0], row[1]), high_23 = _mm_unpackhi_epi32(row[2], row[3]);
  words[0] = _mm_unpacklo_epi64(low_01, low_23);
  words[1] = _mm_unpackhi_epi64(low_01, low_23);
  words[2] = _mm_unpacklo_epi64(high_01, high_23);
  words[3] = _mm_unpackhi_epi64(high_01, high_23);
}

/// A word of a row is its part of a step.
void write_words_8(const std::uint8_t* chunk, std::int64_t n_steps, std::byte* step) {
  for (std::int64_t first = 0; first < n_steps; first += 4)
    for (std::int64_t column = 0; column < kPanelColumns; column += 4) {
      __m128i words[4];
      transpose_words(chunk + column * kChunkBytes + 4 * first, words);
      for (std::int64_t i = 0; i < std::min<std::int64_t>(4, n_steps - first); ++i)
        store16(step + (first + i) * 4 * kPanelColumns + 4 * column, words[i]);
    }
}

/// The four half bytes of each lane below 2^16, one a byte.
__m128i spread(__m128i lanes) {
  const __m128i bytes = _mm_and_si128(_mm_or_si128(lanes, _mm_slli_epi32(lanes, 8)), _mm_set1_epi32(0x00ff00ff));
  return low_half_bytes(_mm_or_si128(bytes, _mm_slli_epi32(bytes, 4)));
}
__m128i spread_low(__m128i words) { return spread(_mm_and_si128(words, _mm_set1_epi32(0xffff))); }
__m128i spread_high(__m128i words) { return spread(_mm_srli_epi32(words, 16)); }

/// A word of a row is its part of two steps. Columns 16 apart share bytes.
void write_words_4(const std::uint8_t* chunk, std::int64_t n_steps, std::byte* step) {
  constexpr std::int64_t kBytes = 2 * kPanelColumns;
  for (std::int64_t first = 0; first < n_steps; first += 8)
    for (std::int64_t place = 0; place < kPanelColumns / 2; place += 4) {
      const std::int64_t column = place / 16 * 32 + place % 16;
      __m128i low[4], high[4];
      transpose_words(chunk + column * kChunkBytes + 2 * first, low);
      transpose_words(chunk + (column + 16) * kChunkBytes + 2 * first, high);
      const auto store = [&](std::int64_t s, __m128i low_columns, __m128i high_columns) {
        if (s < n_steps) store16(step + s * kBytes + 4 * place, half_bytes(low_columns, high_columns));
      };
      for (std::int64_t i = 0; i < 4; ++i) {
        store(first + 2 * i, spread_low(low[i]), spread_low(high[i]));
        store(first + 2 * i + 1, spread_high(low[i]), spread_high(high[i]));
      }
    }
}

}  // namespace

void pack_panel(const PanelRows& rows, WeightScheme scheme, PanelWords words, std::int64_t n_steps, std::byte* panel) {
  check(words != PanelWords::int8 || scheme != WeightScheme::f8, "pack_panel: f8 has no panels of integers");
  const std::int64_t step_bytes = packed_step_bytes(scheme, words);
  const std::int64_t steps_a_chunk = kChunkBytes * kPanelColumns / step_bytes;
  alignas(64) std::array<std::uint8_t, kPanelColumns * kChunkBytes> chunk;
  std::array<ColumnBytes, kChunkBytes> columns;
  chunk.fill(0);  // rows beyond n_rows stay so
  for (std::int64_t byte = 0, step = 0; byte < rows.row_bytes; byte += kChunkBytes, step += steps_a_chunk) {
    const std::int64_t n_bytes = std::min(kChunkBytes, rows.row_bytes - byte);
    if (n_bytes < kChunkBytes) chunk.fill(0);
    for (std::int64_t r = 0; r < rows.n_rows; ++r) {
      const std::uint8_t* const from = rows.values + r * rows.row_bytes + byte;
      std::uint8_t* const to = chunk.data() + r * kChunkBytes;
      if (n_bytes == kChunkBytes) {
        std::memcpy(to, from, kChunkBytes);
      } else {
        std::memcpy(to, from, static_cast<std::size_t>(n_bytes));
      }
    }
    const std::int64_t n_written = std::min(steps_a_chunk, n_steps - step);
    std::byte* const to = panel + step * step_bytes;
    if (words == PanelWords::int8) {
      scheme == WeightScheme::i4 ? write_words_4(chunk.data(), n_written, to) : write_words_8(chunk.data(), n_written, to);
      continue;
    }
    for (std::int64_t row = 0; row < kPanelColumns; row += 16)
      for (std::int64_t i = 0; i < kChunkBytes; i += 16)
        transpose_bytes(chunk.data() + row * kChunkBytes + i, kChunkBytes, static_cast<std::size_t>(row), columns.data() + i);
    write_steps(columns.data(), scheme, words == PanelWords::bf16, n_written, to);
  }
}

}  // namespace baton::cpu
