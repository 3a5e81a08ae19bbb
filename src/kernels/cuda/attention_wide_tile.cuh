/// Sizes, shared memory and bounds of the wide attention kernel, for its producers and consumers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/attention_wide.h"

namespace baton::cuda {

template <class T, int kDim_>
struct WideTile {
  using Element = T;
  static constexpr int kDim = kDim_;
  static constexpr int kRows = kWideTileRows;
  static constexpr int kWarpgroups = kRows / 64;  ///< that compute
  static constexpr int kConsumerWarps = 4 * kWarpgroups;
  static constexpr int kThreads = 32 * kConsumerWarps + kProducerThreads;
  static constexpr int kQueryThreads = kProducerThreads - 32;  ///< the first producer warp copies keys and values
  static constexpr int kStageTokens = 128;
  static constexpr int kRowBytes = 2 * kDim;
  static constexpr int kPanels = kRowBytes / 128;
  static constexpr int kPartBytes = kStageTokens * kRowBytes;  ///< keys or values of a stage
  static constexpr int kStages = kDim == 64 ? 4 : 2;
  static constexpr int kTasks = 2;  ///< tiles whose queries are in shared memory
  static constexpr int kQueryBytes = kRows * kRowBytes;
  static constexpr int kPanelBytes = 64 * 128;  ///< a panel of a warpgroup's queries
  static constexpr int kSharedBytes =
      2 * kStages * kPartBytes + kTasks * kQueryBytes +
      kTasks * (kRows * static_cast<int>(sizeof(TokenRow)) + static_cast<int>(sizeof(TileTask))) +
      2 * kPairBatch * static_cast<int>(sizeof(ItemPair)) + 8 * (4 * kStages + 2 * kTasks);
  static_assert(kDim == 64 || kDim == 128);
};

/// Dynamic shared memory, in this order. Keys and values have barriers of their own: a stage's keys are free long before
/// its values.
template <class Tile>
struct WideMemory {
  std::uint32_t keys, values, queries;
  TokenRow* rows;   ///< of each task
  TileTask* tasks;  ///< a task without rows follows the last one
  ItemPair* pairs;  ///< two batches
  std::uint32_t key_full, key_empty, value_full, value_empty, task_full, task_empty;

  __device__ explicit WideMemory(std::byte* memory) {
    keys = shared_address(memory);
    values = keys + Tile::kStages * Tile::kPartBytes;
    queries = values + Tile::kStages * Tile::kPartBytes;
    std::byte* const at = memory + 2 * Tile::kStages * Tile::kPartBytes + Tile::kTasks * Tile::kQueryBytes;
    rows = reinterpret_cast<TokenRow*>(at);
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
struct TileBounds {
  int inner_lo, inner_hi, hull_lo, hull_hi, first_stage;

  /// Called by a whole warp.
  __device__ __forceinline__ TileBounds(const TokenRow* rows, int n_token_rows, int kv_begin, int kv_end, int lane)
      : inner_lo(kv_begin), inner_hi(kv_end), hull_lo(kv_end), hull_hi(kv_begin), first_stage(first_stage_position(kv_begin)) {
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
  template <class Tile>
  __device__ __forceinline__ int begin() const {
    return first_stage + (hull_lo - first_stage) / Tile::kStageTokens * Tile::kStageTokens;
  }
  template <class Tile>
  __device__ __forceinline__ int last() const {
    if (hull_hi <= hull_lo) return begin<Tile>() - Tile::kStageTokens;
    return first_stage + (hull_hi - 1 - first_stage) / Tile::kStageTokens * Tile::kStageTokens;
  }
};
static_assert(offsetof(TokenRow, kv_lo) == 8 && offsetof(TokenRow, kv_hi) == 12);

}  // namespace baton::cuda
