/// The tile GEMM, a template over the class that provides the tile instructions (tiles.h). Included only by files that
/// have such a class.
///
/// A panel's words have the layout of tiles: 16 steps of 16 columns, with steps 256 bytes apart. A group of 32 rows
/// keeps four tiles of sums, 32 rows by 32 columns, and passes over k twice for a panel. A group of up to 16 rows
/// keeps four tiles for all 64 columns. All groups of rows use a panel before the next panel, so weights come from
/// memory once.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/gemm/skinny_gemm.h"
#include "kernels/cpu/tiles.h"

namespace baton::cpu {
namespace {

/// Most rows whose sums are in tiles at the same time.
constexpr std::int64_t kGroupRows = 2 * kTileRows;
/// Bytes of 16 steps of a panel, which one iteration over k reads.
constexpr std::int64_t kBlockBytes = kTileRows * kStepBytes;
/// How far ahead weights are prefetched into the second-level cache. The processor does not prefetch enough by itself
/// for strided tile loads: 8 KB made 32 rows 1.3 to 1.6 times as fast and one row 1.6 times
/// (bench/results/cpu-amx.md).
constexpr std::int64_t kBytesAhead = 2 * kBlockBytes;

/// One group of rows and one panel.
struct TileGroup {
  const std::byte* weight;
  std::int64_t n_blocks;  ///< of 16 steps
  const std::byte* x;
  std::int64_t x_stride;
  float* out;
  std::int64_t out_stride;
  bool is_first;  ///< the weights come from memory, not from the cache
};

/// Tile shapes for a group: sums in registers 0 to 3, for the first 16 rows and for the others; rows of x in 4 and 5;
/// weights from 6 on, or from 5 on if the group has at most 16 rows.
inline TileShapes shapes_of(std::int64_t n_rows) {
  const auto first = static_cast<int>(std::min<std::int64_t>(n_rows, kTileRows));
  const auto rest = static_cast<int>(n_rows) - first;
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.set(tile, kTileRows);
  for (const int tile : {0, 1, 4}) shapes.set(tile, first);
  for (const int tile : {2, 3}) shapes.set(tile, rest == 0 ? first : rest);
  if (rest > 0) shapes.set(5, rest);
  return shapes;
}

inline void fetch_block(const std::byte* block) {
#pragma GCC unroll 64
  for (std::int64_t line = 0; line < kBlockBytes; line += 64) __builtin_prefetch(block + kBytesAhead + line, 0, 2);
}

/// For up to 16 rows.
template <class T>
void multiply_half_group(const TileGroup& group) {
  const std::byte* weight = group.weight;
  const std::byte* x = group.x;
  T::template zero<0>();
  T::template zero<1>();
  T::template zero<2>();
  T::template zero<3>();
  for (std::int64_t block = 0; block < group.n_blocks; ++block, weight += kBlockBytes, x += kTileRowBytes) {
    if (group.is_first) fetch_block(weight);
    T::template load<4>(x, group.x_stride);
    T::template load<5>(weight, kStepBytes);
    T::template multiply_add<0, 4, 5>();
    T::template load<6>(weight + 64, kStepBytes);
    T::template multiply_add<1, 4, 6>();
    T::template load<7>(weight + 128, kStepBytes);
    T::template multiply_add<2, 4, 7>();
    T::template load<5>(weight + 192, kStepBytes);
    T::template multiply_add<3, 4, 5>();
  }
  const std::int64_t stride = group.out_stride * 4;
  T::template store<0>(group.out, stride);
  T::template store<1>(group.out + 16, stride);
  T::template store<2>(group.out + 32, stride);
  T::template store<3>(group.out + 48, stride);
}

/// For 17 to 32 rows.
template <class T>
void multiply_group(const TileGroup& group) {
  const std::int64_t stride = group.out_stride * 4;
  for (int half = 0; half < 2; ++half) {
    const std::byte* weight = group.weight;
    const std::byte* x = group.x;
    T::template zero<0>();
    T::template zero<1>();
    T::template zero<2>();
    T::template zero<3>();
    for (std::int64_t block = 0; block < group.n_blocks; ++block, weight += kBlockBytes, x += kTileRowBytes) {
      if (group.is_first && half == 0) fetch_block(weight);
      T::template load<6>(weight + half * 128, kStepBytes);
      T::template load<4>(x, group.x_stride);
      T::template multiply_add<0, 4, 6>();
      T::template load<7>(weight + half * 128 + 64, kStepBytes);
      T::template multiply_add<1, 4, 7>();
      T::template load<5>(x + kTileRows * group.x_stride, group.x_stride);
      T::template multiply_add<2, 5, 6>();
      T::template multiply_add<3, 5, 7>();
    }
    float* out = group.out + half * 32;
    T::template store<0>(out, stride);
    T::template store<1>(out + 16, stride);
    T::template store<2>(out + kTileRows * group.out_stride, stride);
    T::template store<3>(out + kTileRows * group.out_stride + 16, stride);
  }
}

template <class T>
void run_tile_gemm(const SkinnyGemmTask& task) {
  const PanelMatrix& weight = task.weight;
  const std::int64_t n_rest = task.n_rows % kGroupRows;
  const std::int64_t n_whole = task.n_rows - n_rest;
  const TileShapes whole_shapes = shapes_of(kGroupRows);
  const TileShapes rest_shapes = shapes_of(n_rest > 0 ? n_rest : kGroupRows);
  // Sums of a panel that extends beyond n: the rows of out are too short for it.
  alignas(64) std::array<float, kGroupRows * kPanelColumns> cut;
  if (n_whole == 0) T::configure(rest_shapes);
  if (n_rest == 0) T::configure(whole_shapes);
  for (std::int64_t panel = task.first_panel; panel < task.end_panel; ++panel) {
    const std::int64_t n_columns = std::min(kPanelColumns, weight.n - panel * kPanelColumns);
    if (n_whole > 0 && n_rest > 0) T::configure(whole_shapes);
    for (std::int64_t row = 0; row < task.n_rows; row += kGroupRows) {
      const std::int64_t n_rows = std::min(kGroupRows, task.n_rows - row);
      float* out = task.out + row * task.out_stride + panel * kPanelColumns;
      TileGroup group{weight.data + panel * weight.panel_stride,
                      weight.n_steps / kTileRows,
                      task.x + row * task.x_stride,
                      task.x_stride,
                      out,
                      task.out_stride,
                      row == 0};
      const bool is_cut = n_columns < kPanelColumns;
      if (is_cut) {
        group.out = cut.data();
        group.out_stride = kPanelColumns;
      }
      if (row == n_whole && n_whole > 0) T::configure(rest_shapes);
      if (n_rows > kTileRows) {
        multiply_group<T>(group);
      } else {
        multiply_half_group<T>(group);
      }
      for (std::int64_t r = 0; is_cut && r < n_rows; ++r)
        std::memcpy(out + r * task.out_stride, cut.data() + r * kPanelColumns, static_cast<std::size_t>(n_columns) * 4);
    }
  }
  T::release();
}

}  // namespace
}  // namespace baton::cpu
