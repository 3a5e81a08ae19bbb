/// Which tiles, and which stages of tiles, each block of the wide GEMM and of the GEMM of x in f8_e4m3 multiplies. This is
/// pure arithmetic and needs no device.
#pragma once

#include <array>
#include <cstdint>

namespace baton::cuda {

inline constexpr int kWideStageK = 64;  ///< columns of a stage
/// Passes over rows of x that share a tile of the weight at about the same time: their x stays in the L2.
inline constexpr int kPassesAtOnce = 8;

/// Rows of x that a kernel multiplies at once; fewer are padded.
inline constexpr int kWideWidths[] = {160, 192, 256};
inline constexpr int kMostWideWidth = 256;

/// The narrowest of these with which as few passes as possible have all rows.
constexpr int wide_width(std::int64_t n_rows) {
  const std::int64_t n_passes = (n_rows + kMostWideWidth - 1) / kMostWideWidth;
  for (const int width : kWideWidths)
    if (width * n_passes >= n_rows) return width;
  return kMostWideWidth;
}

/// Clusters of so many blocks that run at once on a device, by the number of blocks from 1 to 4.
using WideClusters = std::array<int, 5>;

/// How clusters divide a matmul: each has tiles of 128 rows of the weight and a width of x, and its blocks divide the stages
/// of a tile and then add their sums.
struct WidePlan {
  int n_tiles = 0;
  int n_blocks = 1;  ///< of a cluster
  int n_clusters = 0;
};

/// The plan that ends first.
constexpr WidePlan wide_plan(int n_tiles, int k_stages, const WideClusters& clusters) {
  constexpr int kStoreStages = 4;  // as long as a tile's end, and as the exchange of sums
  constexpr int kExchangeStages = 6;
  WidePlan best;
  int best_cost = 0;
  for (int n_blocks = 1; n_blocks < static_cast<int>(clusters.size()); ++n_blocks) {
    const int at_once = clusters[static_cast<unsigned>(n_blocks)];
    if (at_once == 0 || n_blocks > k_stages || (n_blocks > 1 && n_tiles > at_once)) continue;
    const int n_rounds = (n_tiles + at_once - 1) / at_once;
    const int cost = n_rounds * ((k_stages + n_blocks - 1) / n_blocks + kStoreStages) + (n_blocks > 1 ? kExchangeStages : 0);
    if (best.n_tiles > 0 && cost >= best_cost) continue;
    best = {n_tiles, n_blocks, n_tiles < at_once ? n_tiles : at_once};
    best_cost = cost;
  }
  return best;
}

/// Stages [begin, end) of a tile that a block of a cluster multiplies.
struct WideStages {
  int begin;
  int end;
};
constexpr WideStages wide_stages(int k_stages, int rank, int n_blocks) {
  return {k_stages * rank / n_blocks, k_stages * (rank + 1) / n_blocks};
}

/// The tile of the weight, and the pass over rows of x, that a tile is.
struct WideGemmTile {
  int weight;
  int pass;
};
constexpr WideGemmTile wide_tile(int tile, int n_row_tiles, int n_passes) {
  const int group = tile / (n_row_tiles * kPassesAtOnce);
  const int first_pass = group * kPassesAtOnce;
  const int n = n_passes - first_pass < kPassesAtOnce ? n_passes - first_pass : kPassesAtOnce;
  const int at = tile - group * n_row_tiles * kPassesAtOnce;
  return {at / n, first_pass + at % n};
}

inline constexpr int kF8XRows = 256;  ///< of x in a tile of the GEMM of x in f8_e4m3, at most

/// How its blocks share a matmul.
struct F8Plan {
  int cluster = 1;        ///< blocks of a cluster: up to 4 if they divide the columns of a tile, or 2 with a tile each
  bool shares_x = false;  ///< a cluster's two tiles have the same x, of which each block copies one half to both
};

/// For a weight of `n_row_tiles` times 128 rows and `k_stages` times 128 columns.
constexpr F8Plan f8_plan(int n_row_tiles, int k_stages, std::int64_t n_rows, const WideClusters& clusters) {
  const std::int64_t n_tiles = n_row_tiles * ((n_rows + kF8XRows - 1) / kF8XRows);
  F8Plan plan;
  for (int n = 2; n < static_cast<int>(clusters.size()); ++n)
    if (n_tiles <= clusters[static_cast<unsigned>(n)] && n <= k_stages) plan.cluster = n;
  if (plan.cluster == 1 && n_row_tiles > 1 && n_rows > kF8XRows) plan = {2, true};
  return plan;
}

}  // namespace baton::cuda
