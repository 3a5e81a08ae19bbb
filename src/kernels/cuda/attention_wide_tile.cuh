/// Sizes, shared memory and bounds of the wide attention kernel, for its producers and consumers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/attention_wide.h"

namespace baton::cuda {

/// kByChunks: the tiles of batch-invariant mode (attention_wide_invariant_consumer.cuh), with stages of half the length,
/// which begin at multiples of it.
template <class T, int kDim_, bool kByChunks_ = false>
struct WideTile {
  using Element = T;
  static constexpr bool kByChunks = kByChunks_;
  static constexpr int kDim = kDim_;
  static constexpr int kRows = kWideTileRows;
  static constexpr int kWarpgroups = kRows / 64;  ///< that compute
  static constexpr int kConsumerWarps = 4 * kWarpgroups;
  static constexpr int kThreads = 32 * kConsumerWarps + kProducerThreads;
  static constexpr int kQueryThreads = kProducerThreads - 32;  ///< the first producer warp copies keys and values
  static constexpr int kStageTokens = kByChunks ? 64 : 128;
  static constexpr int kRowBytes = 2 * kDim;
  static constexpr int kPanels = kRowBytes / 128;
  static constexpr int kPartBytes = kStageTokens * kRowBytes;  ///< keys or values of a stage
  static constexpr int kStages = (kDim == 64 ? 4 : 2) * (kByChunks ? 2 : 1);
  static constexpr int kTasks = 2;  ///< tiles whose queries are in shared memory
  static constexpr int kQueryBytes = kRows * kRowBytes;
  static constexpr int kPanelBytes = 64 * 128;  ///< a panel of a warpgroup's queries
  /// By chunks, the outputs of the chunks so far: kKeptTiles x 8 columns in registers, the others in shared memory.
  static constexpr int kKeptTiles = kDim == 128 ? 10 : kDim / 8;
  static constexpr int kStateBytes = kByChunks ? (kDim / 8 - kKeptTiles) * 16 * 32 * kConsumerWarps : 0;
  static constexpr int kSharedBytes =
      2 * kStages * kPartBytes + kTasks * kQueryBytes + kStateBytes +
      kTasks * (kRows * static_cast<int>(sizeof(TokenRow)) + static_cast<int>(sizeof(TileTask))) +
      2 * kPairBatch * static_cast<int>(sizeof(ItemPair)) + 8 * (4 * kStages + 2 * kTasks);
  static_assert(kDim == 64 || kDim == 128);

  /// Where the stages of a run that begins at `kv_begin` begin.
  static __device__ __forceinline__ int first_position(int kv_begin) {
    return kByChunks ? kv_begin & -kStageTokens : first_stage_position(kv_begin);
  }
};

/// Dynamic shared memory, in this order. Keys and values have barriers of their own: a stage's keys are free long before
/// its values.
template <class Tile>
struct WideMemory {
  std::uint32_t keys, values, queries;
  float4* states;   ///< of each consumer thread, by chunks
  TokenRow* rows;   ///< of each task
  TileTask* tasks;  ///< a task without rows follows the last one
  ItemPair* pairs;  ///< two batches
  std::uint32_t key_full, key_empty, value_full, value_empty, task_full, task_empty;

  __device__ explicit WideMemory(std::byte* memory) {
    keys = shared_address(memory);
    values = keys + Tile::kStages * Tile::kPartBytes;
    queries = values + Tile::kStages * Tile::kPartBytes;
    std::byte* const at = memory + 2 * Tile::kStages * Tile::kPartBytes + Tile::kTasks * Tile::kQueryBytes;
    states = reinterpret_cast<float4*>(at);
    rows = reinterpret_cast<TokenRow*>(at + Tile::kStateBytes);
    tasks = reinterpret_cast<TileTask*>(rows + Tile::kTasks * Tile::kRows);
    pairs = reinterpret_cast<ItemPair*>(tasks + Tile::kTasks);
    key_full = shared_address(pairs + 2 * kPairBatch);
    key_empty = key_full + 8 * Tile::kStages;
    value_full = key_empty + 8 * Tile::kStages;
    value_empty = value_full + 8 * Tile::kStages;
    task_full = value_empty + 8 * Tile::kStages;
    task_empty = task_full + 8 * Tile::kTasks;
  }
};

/// Positions of a tile's run that all its rows see, [inner_lo, inner_hi), and that some row sees, [hull_lo, hull_hi).
/// Rows that see no key do not count. Only the hull is read; where stages begin depends on the run alone.
template <class Tile>
struct TileBounds {
  int inner_lo, inner_hi, hull_lo, hull_hi, first_stage;

  /// Called by a whole warp.
  __device__ __forceinline__ TileBounds(const TokenRow* rows, int n_token_rows, int kv_begin, int kv_end, int lane)
      : inner_lo(kv_begin), inner_hi(kv_end), hull_lo(kv_end), hull_hi(kv_begin), first_stage(Tile::first_position(kv_begin)) {
#pragma unroll 1
    for (int i = lane; i < n_token_rows; i += 32) {
      const int4 row = *reinterpret_cast<const int4*>(rows + i);  // slot, position, kv_lo, kv_hi
      if (row.w <= row.z) continue;
      inner_lo = max(inner_lo, row.z);
      inner_hi = min(inner_hi, row.w);
      hull_lo = min(hull_lo, max(kv_begin, row.z));
      hull_hi = max(hull_hi, min(kv_end, row.w));
    }
    inner_lo = __reduce_max_sync(~0u, inner_lo);
    inner_hi = __reduce_min_sync(~0u, inner_hi);
    hull_lo = __reduce_min_sync(~0u, hull_lo);
    hull_hi = __reduce_max_sync(~0u, hull_hi);
  }
  /// Positions of the first and the last stage that hold some of the hull; the last is before the first if it is empty.
  __device__ __forceinline__ int begin() const {
    return first_stage + (hull_lo - first_stage) / Tile::kStageTokens * Tile::kStageTokens;
  }
  __device__ __forceinline__ int last() const {
    if (hull_hi <= hull_lo) return begin() - Tile::kStageTokens;
    return first_stage + (hull_hi - 1 - first_stage) / Tile::kStageTokens * Tile::kStageTokens;
  }
};
static_assert(offsetof(TokenRow, kv_lo) == 8 && offsetof(TokenRow, kv_hi) == 12);

}  // namespace baton::cuda
