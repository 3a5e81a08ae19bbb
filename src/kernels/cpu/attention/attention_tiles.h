/// Scores and values of a chunk by AMX tiles, over a bf16 cache and rows of bf16 pairs. Templates over the class that
/// provides the tile instructions (tiles.h).
///
/// The storage has the layout of tiles: a K part has one tile, of 16 pairs of dimensions by 16 tokens, for each 32
/// dimensions; a V part has one tile, of 8 pairs of tokens by 16 dimensions, for each 16 dimensions.
#pragma once

#include <algorithm>

#include "kernels/cpu/attention/attention_tile.h"
#include "kernels/cpu/tiles.h"

namespace baton::cpu {
namespace {

/// Up to 32 rows of words, in steps: row r of step s is at data + r * stride + s * step_bytes.
struct TileRowsView {
  const std::byte* data;
  std::int64_t stride;
  std::int64_t step_bytes;
};

/// Tile shapes for n_rows rows of `word_bytes` bytes per step: sums in registers 0 to 3, rows in 4 and 5, storage from
/// 6 on, or from 5 on if there are at most 16 rows.
inline TileShapes row_shapes(int n_rows, int word_bytes) {
  const int first = std::min(n_rows, kTileRows);
  const int rest = n_rows - first;
  TileShapes shapes;
  for (const int tile : {0, 1, 2, 3}) shapes.set(tile, tile < 2 || rest == 0 ? first : rest);
  for (const int tile : {5, 6, 7}) shapes.set(tile, word_bytes / 4);
  shapes.set(4, first, word_bytes);
  if (rest > 0) shapes.set(5, rest, word_bytes);
  return shapes;
}

/// out[r][16 c + i] = sum over steps of row r's words times column i of the tile at storage(step, c), for up to 16
/// rows and 4 columns of tiles. Rows of `out` are `out_stride` bytes apart.
template <class T, class Storage>
void multiply_sixteen(const TileRowsView& rows, int n_steps, int n_columns, const Storage& storage, std::int64_t storage_stride,
                      float* out, std::int64_t out_stride) {
  T::template zero<0>();
  T::template zero<1>();
  T::template zero<2>();
  T::template zero<3>();
  for (int step = 0; step < n_steps; ++step) {
    T::template load<4>(rows.data + step * rows.step_bytes, rows.stride);
    T::template load<5>(storage(step, 0), storage_stride);
    T::template multiply_add<0, 4, 5>();
    if (n_columns < 2) continue;
    T::template load<6>(storage(step, 1), storage_stride);
    T::template multiply_add<1, 4, 6>();
    if (n_columns < 3) continue;
    T::template load<7>(storage(step, 2), storage_stride);
    T::template multiply_add<2, 4, 7>();
    if (n_columns < 4) continue;
    T::template load<5>(storage(step, 3), storage_stride);
    T::template multiply_add<3, 4, 5>();
  }
  T::template store<0>(out, out_stride);
  if (n_columns > 1) T::template store<1>(out + 16, out_stride);
  if (n_columns > 2) T::template store<2>(out + 32, out_stride);
  if (n_columns > 3) T::template store<3>(out + 48, out_stride);
}

/// The same for 17 to 32 rows and up to 2 columns of tiles.
template <class T, class Storage>
void multiply_thirty_two(const TileRowsView& rows, int n_steps, int n_columns, const Storage& storage,
                         std::int64_t storage_stride, float* out, std::int64_t out_stride) {
  T::template zero<0>();
  T::template zero<1>();
  T::template zero<2>();
  T::template zero<3>();
  for (int step = 0; step < n_steps; ++step) {
    const std::byte* words = rows.data + step * rows.step_bytes;
    T::template load<4>(words, rows.stride);
    T::template load<6>(storage(step, 0), storage_stride);
    T::template multiply_add<0, 4, 6>();
    T::template load<5>(words + kTileRows * rows.stride, rows.stride);
    T::template multiply_add<2, 5, 6>();
    if (n_columns < 2) continue;
    T::template load<7>(storage(step, 1), storage_stride);
    T::template multiply_add<1, 4, 7>();
    T::template multiply_add<3, 5, 7>();
  }
  std::byte* rest = reinterpret_cast<std::byte*>(out) + kTileRows * out_stride;
  T::template store<0>(out, out_stride);
  T::template store<2>(rest, out_stride);
  if (n_columns < 2) return;
  T::template store<1>(out + 16, out_stride);
  T::template store<3>(rest + kTileRowBytes, out_stride);
}

/// For each tile that is read, prefetches as many bytes of the next part, so that memory and tile unit work at the
/// same time.
inline void fetch_part(const std::byte* part, int n_bytes) {
#pragma GCC unroll 16
  for (int line = 0; line < n_bytes; line += 64) __builtin_prefetch(part + line, 0, 2);
}

/// task.scores = q times the keys, not scaled. head_dim must be a multiple of 32. Prefetches the values.
template <class T>
void score_by_tiles(const ChunkTask& task) {
  constexpr std::int64_t kScoreStride = kChunkTokens * 4;
  T::configure(row_shapes(task.n_rows, kTileRowBytes));
  const TileRowsView rows{task.q, kQueryRowBytes, kTileRowBytes};
  const int at_once = task.n_rows > kTileRows ? 2 : 4;
  for (int tile = task.first_tile; tile < task.end_tile; tile += at_once) {
    const int n_columns = std::min(at_once, task.end_tile - tile);
    const auto keys = [&](int step, int column) {
      constexpr int kBytes = kTileRows * kTileRowBytes;
      fetch_part(task.v_tiles[tile + column] + step * kBytes, kBytes);
      return task.k_tiles[tile + column] + step * kBytes;
    };
    const auto multiply =
        task.n_rows > kTileRows ? multiply_thirty_two<T, decltype(keys)> : multiply_sixteen<T, decltype(keys)>;
    multiply(rows, task.head_dim / 32, n_columns, keys, kTileRowBytes, task.scores + tile * 16, kScoreStride);
  }
}

/// task.chunk_o = the weights (bf16, contiguous) times the values. Prefetches the next keys.
template <class T>
void value_by_tiles(const ChunkTask& task) {
  constexpr int kPairBytes = kTileRowBytes / 2;  // for the 16 tokens of a tile
  T::configure(row_shapes(task.n_rows, kPairBytes));
  const int n_steps = task.end_tile - task.first_tile;
  const TileRowsView rows{task.weights + task.first_tile * kPairBytes, kChunkTokens * 4, kPairBytes};
  const int at_once = task.n_rows > kTileRows ? 2 : 4;
  for (int first = 0; first < task.v_dim / 16; first += at_once) {
    const int n_columns = std::min(at_once, task.v_dim / 16 - first);
    const auto values = [&](int step, int column) {
      constexpr int kBytes = kTileRows * kPairBytes;
      const int tile = task.first_tile + step;
      fetch_part(task.k_ahead[tile] + (first + column) * kBytes, kBytes);
      return task.v_tiles[tile] + (first + column) * kTileRowBytes;
    };
    const auto multiply =
        task.n_rows > kTileRows ? multiply_thirty_two<T, decltype(values)> : multiply_sixteen<T, decltype(values)>;
    multiply(rows, n_steps, n_columns, values, task.v_dim * 4, task.chunk_o + first * 16, task.v_dim * 4);
  }
}

}  // namespace
}  // namespace baton::cpu
