/// How weights of 8 and 4 bits lie in device memory. This is pure arithmetic and needs no device.
///
/// A tile is 64 rows of the weight: wgmma's M. A chunk is as many of their columns as fill 2 KB, a piece: 32 columns of 8
/// bits, 64 of 4. Each of 128 threads finds in its 16 bytes of a piece what it holds of wgmma's operand A: for each step of
/// 16 columns the fragments i = 0 to 3, pairs e = 0 and 1 of neighbouring columns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/stored_matrix.h"

namespace baton::cuda {

inline constexpr int kSchemeTileRows = 64;
inline constexpr int kPieceBytes = 2048;
/// Tiles have a multiple of so many chunks; those after the last column are zero.
inline constexpr int kChunksAtOnce = 8;

constexpr int chunk_columns(WeightScheme scheme) { return scheme == WeightScheme::i4 ? 64 : 32; }

/// Of the tile.
constexpr int fragment_row(int thread, int i) { return thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8; }
/// Of the chunk.
constexpr int fragment_column(int thread, int step, int i, int e) { return step * 16 + thread % 4 * 2 + i / 2 * 8 + e; }
/// Which of the thread's four words has a code, and the code's lowest bit.
constexpr int fragment_word(WeightScheme scheme, int step, int i) {
  return scheme == WeightScheme::i4 ? step : step * 2 + i / 2;
}
constexpr int fragment_bit(WeightScheme scheme, int i, int e) {
  return scheme == WeightScheme::i4 ? 4 * (i + 4 * e) : 8 * (2 * e + i % 2);
}

/// A packed weight [n, k].
struct SchemeView {
  const std::byte* values = nullptr;    ///< [n_tiles, n_chunks] pieces
  const std::byte* scales = nullptr;    ///< [n_tiles, n_groups, 64] of scale_dtype; null: row_scales instead
  const std::uint8_t* zeros = nullptr;  ///< [n_tiles, n_groups, 64]; null: the middle of the range
  const float* row_scales = nullptr;    ///< [n_tiles, 64], or null
  DType scale_dtype = DType::f32;
  std::int64_t n = 0;
  std::int64_t k = 0;
  int n_tiles = 0;
  int n_chunks = 0;
  int n_groups = 1;      ///< also after the last column
  int group_shift = 30;  ///< a group has 2^group_shift columns
};

}  // namespace baton::cuda
