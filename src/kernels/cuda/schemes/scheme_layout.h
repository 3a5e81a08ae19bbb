/// How weights of 8 and 4 bits lie in device memory. This is pure arithmetic and needs no device.
///
/// A tile is 64 rows of the weight: wgmma's M. A chunk is as many of their columns as fill 2 KB, a piece: 32 columns of 8
/// bits, 64 of 4. Each of 128 threads finds in its 16 bytes of a piece what it holds of wgmma's operand A: for each step of
/// 16 columns the fragments i = 0 to 3, pairs e = 0 and 1 of neighbouring columns.
///
/// Which rows and columns of the weight these are depends on the order. In wgmma's they are those of operand A, because x
/// comes from shared memory as it is. In the order of lanes a lane has four adjacent rows, half of them in each of two
/// warps' bytes, and eight adjacent columns of every 32, so that it loads x and scales, and stores sums, many bytes at a
/// time.
///
/// In wgmma's order 8 bits lie so that the matrix units also read them from shared memory, for x in 8 bits: two chunks are a
/// 4 KB matrix of 64 rows and 64 columns, whose rows of 64 bytes are swizzled in units of 16. A unit has what one thread needs
/// of a row, so that the columns stand in the order of f8_place (device/f8_rows.h), which x in 8 bits has, too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/stored_matrix.h"

namespace baton::cuda {

inline constexpr int kSchemeTileRows = 64;
inline constexpr int kPieceBytes = 2048;
/// Tiles in wgmma's order have a multiple of so many chunks; those after the last column are zero.
inline constexpr int kChunksAtOnce = 8;
/// In the order of lanes, tiles have a multiple of so many columns.
inline constexpr int kLaneStageColumns = 64;

enum class PieceOrder { wgmma, lanes };

constexpr bool has_half_bytes(WeightScheme scheme) { return scheme == WeightScheme::i4 || scheme == WeightScheme::f4; }
constexpr int chunk_columns(WeightScheme scheme) { return has_half_bytes(scheme) ? 64 : 32; }

/// Of the tile.
constexpr int fragment_row(int thread, int i) { return thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8; }
constexpr int lane_row(int thread, int i) { return thread / 64 * 32 + thread % 32 / 4 * 4 + thread / 32 % 2 * 2 + i % 2; }
/// Of the chunk.
constexpr int fragment_column(int thread, int step, int i, int e) { return step * 16 + thread % 4 * 2 + i / 2 * 8 + e; }
constexpr int lane_column(int thread, int step, int i, int e) {
  return step / 2 * 32 + thread % 4 * 8 + step % 2 * 4 + i / 2 * 2 + e;
}
/// Which of the thread's four words has a code, and the code's lowest bit (not of f4: see place_f4).
constexpr int fragment_word(WeightScheme scheme, int step, int i) { return has_half_bytes(scheme) ? step : step * 2 + i / 2; }
constexpr int fragment_bit(WeightScheme scheme, int i, int e) {
  return scheme == WeightScheme::i4 ? 4 * (i + 4 * e) : 8 * (2 * e + i % 2);
}

/// Of two chunks of 8 bits in wgmma's order: where a thread's 16 bytes of its first row begin, and from there those of its
/// second row, eight below. A unit holds the word of each step of 16 columns, and that the columns 0, 8, 1 and 9 after the
/// thread's first.
constexpr int chunk_pair_place(int thread) {
  return thread / 32 * 1024 + thread % 32 / 4 * 64 + (thread % 4 ^ thread % 32 / 8) * 16;
}
inline constexpr int kSecondRowBytes = 512;
/// The fragment of the order of lanes whose bits fragment i has there: words are of one row, not of one step's half.
constexpr int fragment_of_row(int i) { return i / 2 + i % 2 * 2; }

/// The four bits of f4 in the half e of a word. Three of four codes have their bits where one shift by 3 i brings them to
/// those of a bf16: the sign in bit 15, the exponent and the mantissa in bits 8 to 6. The last one has the bits that remain.
constexpr std::uint32_t place_f4(std::uint32_t code, int i, int e) {
  const std::uint32_t sign = code >> 3 & 1u;
  const std::uint32_t magnitude = code & 7u;
  const std::uint32_t bits =
      i == 3 ? magnitude >> 1 << 13 | (magnitude & 1u) << 11 | sign << 10 : magnitude << (6 - 3 * i) | sign << (15 - 3 * i);
  return bits << (16 * e);
}
constexpr std::uint32_t code_of_f4(std::uint32_t word, int i, int e) {
  word >>= 16 * e;
  if (i == 3) return (word >> 10 & 1u) << 3 | (word >> 13 & 3u) << 1 | (word >> 11 & 1u);
  return (word >> (15 - 3 * i) & 1u) << 3 | (word >> (6 - 3 * i) & 7u);
}

/// How the packed scales of f4 are read. They have no sign and no zero: negative scales change the signs of their numbers,
/// and numbers whose scale is 0 are 0. What a byte stands for multiplies, with the scale of the row, the number exactly.
///
///     NVFP4   five bits of exponent, three of mantissa     the file's scale / 2^7; 2^7 is in the scale of the row
///     MXFP4   an exponent                                  the file's scale over the row's largest, which is in the scale
///                                                          of the row. Numbers below 2^-126 (f16: 2^-24) lose bits
///
/// As a pair of x's type, byte * pair_factor + pair_base is the scale times 2^126 (bf16) or 2^14 (f16): what remains of a
/// number whose bits were put in place. As f32 it is the bits byte << shift, times unit.
struct F4Scales {
  std::uint32_t pair_factor = 0;
  std::uint32_t pair_base = 0;
  int shift = 0;  ///< 0: no weight of f4
  float unit = 0;
  int largest = 0;  ///< of MXFP4: the byte of the row's largest scale
};
constexpr F4Scales f4_scales(DType scale_dtype, DType dtype_of_x) {
  const bool is_half = dtype_of_x == DType::f16;
  if (scale_dtype == DType::f8_e4m3) return {(is_half ? 128u : 16u) * 0x10001u, is_half ? 0u : 0x70007000u, 20, 0x1p98f, 0};
  return {(is_half ? 1024u : 128u) * 0x10001u, 0, 23, is_half ? 0x1p98f : 0x1p-126f, is_half ? 29 : 253};
}
/// A scale of NVFP4 without its sign, as packed.
constexpr std::uint32_t packed_e4m3(std::uint32_t magnitude) {
  if (magnitude >= 8) return magnitude + 120;
  if (magnitude == 0) return 0;
  const std::uint32_t highest = magnitude >= 4 ? 2 : magnitude >= 2 ? 1 : 0;
  return (13 + highest) << 3 | (magnitude << (3 - highest) & 7u);
}

/// A packed weight [n, k].
struct SchemeView {
  const std::byte* values = nullptr;    ///< [n_tiles, n_chunks] pieces
  const std::byte* scales = nullptr;    ///< [n_tiles, n_groups, 64] of scale_dtype; null: row_scales instead
  const std::uint8_t* zeros = nullptr;  ///< [n_tiles, n_groups, 64]; null: the middle of the range. Of f4: its scales
  const float* row_scales = nullptr;    ///< [n_tiles, 64], or null
  F4Scales f4;
  DType scale_dtype = DType::f32;
  std::int64_t n = 0;
  std::int64_t k = 0;
  int n_tiles = 0;
  int n_chunks = 0;
  int n_groups = 1;      ///< also after the last column
  int group_shift = 30;  ///< a group has 2^group_shift columns
};

}  // namespace baton::cuda
