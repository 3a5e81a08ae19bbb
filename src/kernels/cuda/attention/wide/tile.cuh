/// Sizes, shared memory and bounds of the wide attention kernel, for its producers and consumers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_fp16.h>

#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/attention/wide/wide.h"

namespace baton::cuda {

/// T is the type of queries and outputs, and of keys and values unless kFp8: then these are e4m3, and producers make f16 of
/// them for the matmuls (attention/wide/widen.cuh). kByChunks: the tiles of batch-invariant mode
/// (attention/invariant/wide_consumer.cuh). Both have stages of half the length; in the mode they begin at multiples of it.
template <class T, int kDim_, bool kByChunks_ = false, bool kFp8 = false>
struct WideTile {
  using Element = T;
  using Operand = std::conditional_t<kFp8, __half, T>;
  static constexpr bool kByChunks = kByChunks_;
  static constexpr bool kIsFp8 = kFp8;
  static constexpr int kDim = kDim_;
  static constexpr int kRows = kWideTileRows;
  static constexpr int kWarpgroups = kRows / 64;  ///< that compute
  static constexpr int kConsumerWarps = 4 * kWarpgroups;
  static constexpr int kThreads = 32 * kConsumerWarps + kProducerThreads;
  static constexpr int kQueryThreads = kProducerThreads - 32;  ///< the first producer warp copies keys and values
  static constexpr int kQueryWarps = kQueryThreads / 32;
  static constexpr int kStageTokens = kByChunks || kFp8 ? 64 : 128;
  static constexpr int kRowBytes = 2 * kDim;
  static constexpr int kPartBytes = kStageTokens * kRowBytes;  ///< keys or values of a stage
  static constexpr int kStages = kFp8 ? (kDim == 64 ? 6 : 3) : (kDim == 64 ? 4 : 2) * (kByChunks ? 2 : 1);
  /// Keys and values as they are copied. e4m3 has a ring of its own for that.
  static constexpr int kCopiedRowBytes = kFp8 ? kDim : kRowBytes;
  static constexpr int kCopiedPanels = (kCopiedRowBytes + 127) / 128;
  static constexpr int kCopiedPanelRow = kCopiedRowBytes / kCopiedPanels;  ///< bytes of a token in a panel
  static constexpr int kCopiedPartBytes = kStageTokens * kCopiedRowBytes;
  /// Over e4m3 and by chunks, heads of 128 leave no room for a third.
  static constexpr int kCopiedStages = kFp8 && kByChunks && kDim == 128 ? 2 : kStages;
  static constexpr int kCopiedBytes = kFp8 ? 2 * kCopiedStages * kCopiedPartBytes : 0;  ///< of that ring
  static constexpr int kTasks = 2;  ///< tiles whose queries are in shared memory
  static constexpr int kQueryBytes = kRows * kRowBytes;
  static constexpr int kPanelBytes = 64 * 128;  ///< a panel of a warpgroup's queries
  /// By chunks, the outputs of the chunks so far: kKeptTiles x 8 columns in registers, the others in shared memory.
  static constexpr int kKeptTiles = kDim == 128 ? 10 : kDim / 8;
  static constexpr int kStateBytes = kByChunks ? (kDim / 8 - kKeptTiles) * 16 * 32 * kConsumerWarps : 0;
  static constexpr int kFactorBytes = kFp8 ? kTasks * kRows * static_cast<int>(sizeof(float)) : 0;
  static constexpr int kSharedBytes =
      2 * kStages * kPartBytes + kCopiedBytes + kTasks * kQueryBytes + kStateBytes +
      kTasks * (kRows * static_cast<int>(sizeof(TokenRow)) + static_cast<int>(sizeof(TileTask))) +
      2 * kPairBatch * static_cast<int>(sizeof(ItemPair)) + kFactorBytes + 8 * (4 * kStages + 2 * kTasks) +
      (kFp8 ? 8 * 4 * kCopiedStages : 0);
  static_assert(kDim == 64 || kDim == 128);

  /// Where the stages of a run that begins at `kv_begin` begin.
  static __device__ __forceinline__ int first_position(int kv_begin) {
    return kByChunks ? kv_begin & -kStageTokens : first_stage_position(kv_begin);
  }
};

/// The keys or the values of a ring of stages: where they lie in shared memory, and the barriers of each stage.
struct StagePart {
  std::uint32_t data, full, empty;
};

/// A ring of stages in shared memory. Keys and values have barriers of their own: a stage's keys are free long before its
/// values.
struct StageRing {
  std::uint32_t keys, values;
  std::uint32_t key_full, key_empty, value_full, value_empty;

  __device__ __forceinline__ StagePart key_part() const { return {keys, key_full, key_empty}; }
  __device__ __forceinline__ StagePart value_part() const { return {values, value_full, value_empty}; }

  /// Addresses of the barriers of `n_stages` stages. Returns the address after them.
  __device__ std::uint32_t place_barriers(std::uint32_t at, int n_stages) {
    key_full = at;
    key_empty = key_full + 8 * n_stages;
    value_full = key_empty + 8 * n_stages;
    value_empty = value_full + 8 * n_stages;
    return value_empty + 8 * n_stages;
  }
};

/// Dynamic shared memory, in this order.
template <class Tile>
struct WideMemory {
  StageRing stages;  ///< as the matmuls read them
  StageRing copies;  ///< as they are copied: the same ring, or that of e4m3
  std::uint32_t queries;
  float4* states;   ///< of each consumer thread, by chunks
  TokenRow* rows;   ///< of each task
  TileTask* tasks;  ///< a task without rows follows the last one
  ItemPair* pairs;  ///< two batches
  float* factors;   ///< of each task's query rows, over e4m3 (RowFactors)
  std::uint32_t task_full, task_empty;

  __device__ explicit WideMemory(std::byte* memory) {
    stages.keys = shared_address(memory);
    stages.values = stages.keys + Tile::kStages * Tile::kPartBytes;
    const std::uint32_t behind = stages.values + Tile::kStages * Tile::kPartBytes;
    queries = behind + Tile::kCopiedBytes;
    std::byte* const at = memory + 2 * Tile::kStages * Tile::kPartBytes + Tile::kCopiedBytes + Tile::kTasks * Tile::kQueryBytes;
    states = reinterpret_cast<float4*>(at);
    rows = reinterpret_cast<TokenRow*>(at + Tile::kStateBytes);
    tasks = reinterpret_cast<TileTask*>(rows + Tile::kTasks * Tile::kRows);
    pairs = reinterpret_cast<ItemPair*>(tasks + Tile::kTasks);
    factors = reinterpret_cast<float*>(pairs + 2 * kPairBatch);
    task_full = stages.place_barriers(shared_address(factors) + Tile::kFactorBytes, Tile::kStages);
    task_empty = task_full + 8 * Tile::kTasks;
    copies = stages;
    if constexpr (Tile::kIsFp8) {
      copies.keys = behind;
      copies.values = behind + Tile::kCopiedStages * Tile::kCopiedPartBytes;
      copies.place_barriers(task_empty + 8 * Tile::kTasks, Tile::kCopiedStages);
    }
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
