/// Sizes and shared memory of the latent attention kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention/latent/latent.h"
#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/attention/wide/tile.cuh"

namespace baton::cuda {

/// The description of a tile for the consumers. Tile rows are (token row, head) pairs of an item, counted from its first.
struct LatentTask {
  std::int32_t first_row = 0;    ///< token row of the item's first
  std::int32_t first = 0;        ///< the tile's first pair
  std::int32_t n_tile_rows = 0;  ///< 0: there is no more work
  std::int32_t first_partial = 0;
  std::int32_t is_direct = 0;
  std::int32_t kv_begin = 0;
  std::int32_t kv_end = 0;
  std::int32_t reserved = 0;  ///< keeps the following shared memory aligned to 16 bytes
};
static_assert(sizeof(LatentTask) == 32);

/// Two consumer warpgroups share a tile's 64 rows and a stage of 64 tokens: each computes the scores of 32 tokens, and half
/// of the output's columns over all 64. kByChunks: the tiles of batch-invariant mode (attention/invariant/latent_consumer.cuh),
/// whose stages begin at multiples of their length.
template <class T, int kLatent_, bool kByChunks = false>
struct LatentTile {
  using Element = T;
  static constexpr int kLatent = kLatent_;
  static constexpr int kDim = kLatent + kLatentRotaryDim;
  static constexpr int kRows = kLatentTileRows;
  static constexpr int kConsumerWarps = 8;
  static constexpr int kConsumerThreads = 32 * kConsumerWarps;
  static constexpr int kThreads = kConsumerThreads + kProducerThreads;
  static constexpr int kQueryThreads = kProducerThreads - 32;  ///< the first producer warp copies keys
  static constexpr int kStageTokens = 64;
  static constexpr int kRowBytes = 2 * kDim;
  static constexpr int kPanels = kRowBytes / 128;
  static constexpr int kPanelBytes = 64 * 128;  ///< of 64 rows: queries, or tokens of a stage
  static constexpr int kStageBytes = kPanels * kPanelBytes;
  static constexpr int kParts = kPanels > 5 ? 3 : 1;  ///< of a stage, that arrive by themselves
  static constexpr int kPartPanels = kPanels / kParts;
  static constexpr int kStages = kLatent > 256 ? 2 : 4;
  static constexpr int kQueryBytes = kPanels * kPanelBytes;
  static constexpr int kColumns = kLatent / 2;  ///< of a warpgroup
  static constexpr int kSharedBytes = kStages * kStageBytes + kQueryBytes + 4 * kRows * static_cast<int>(sizeof(float)) +
                                      2 * kPairBatch * static_cast<int>(sizeof(ItemPair)) +
                                      static_cast<int>(sizeof(LatentTask)) + 8 * ((kParts + 1) * kStages + 2);
  static_assert(kLatent == 256 || kLatent == 512);

  /// Where the stages of a run that begins at `kv_begin` begin.
  static __device__ __forceinline__ int first_position(int kv_begin) {
    return kByChunks ? kv_begin & -kStageTokens : first_stage_position(kv_begin);
  }
};

/// Dynamic shared memory, in this order. Stages and queries have panels with 128 bytes of each
/// token or row, swizzled.
template <class Tile>
struct LatentMemory {
  std::uint32_t stages;
  std::uint32_t queries;
  float* maxima;    ///< [warpgroup][row], of a stage's scores
  float* sums;      ///< [warpgroup][row], of a tile's weights
  ItemPair* pairs;  ///< two batches
  LatentTask* task;
  std::uint32_t full;   ///< [stage][part]
  std::uint32_t empty;  ///< of each stage
  std::uint32_t task_full, task_empty;

  __device__ explicit LatentMemory(std::byte* memory) {
    stages = shared_address(memory);
    queries = stages + Tile::kStages * Tile::kStageBytes;
    maxima = reinterpret_cast<float*>(memory + Tile::kStages * Tile::kStageBytes + Tile::kQueryBytes);
    sums = maxima + 2 * Tile::kRows;
    pairs = reinterpret_cast<ItemPair*>(sums + 2 * Tile::kRows);
    task = reinterpret_cast<LatentTask*>(pairs + 2 * kPairBatch);
    full = shared_address(task + 1);
    empty = full + 8 * Tile::kStages * Tile::kParts;
    task_full = empty + 8 * Tile::kStages;
    task_empty = task_full + 8;
  }
};

/// The token rows of `n` pairs from `first` on.
struct TokenRows {
  int first, n;

  __device__ __forceinline__ TokenRows(int first_pair, int n_pairs, int n_heads)
      : first(first_pair / n_heads), n((first_pair + n_pairs - 1) / n_heads - first + 1) {}
};

}  // namespace baton::cuda
