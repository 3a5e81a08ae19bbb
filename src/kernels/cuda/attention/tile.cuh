/// Sizes, shared memory and work order of the attention kernel, for its producers and consumers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention/launch.h"
#include "kernels/cuda/attention/params.h"
#include "kernels/cuda/attention/step.cuh"
#include "kernels/cuda/device/mma.cuh"

namespace baton::cuda {

constexpr int kConsumerWarps = 4;  ///< a warpgroup
constexpr int kConsumerThreads = 32 * kConsumerWarps;
constexpr int kProducerWarps = 4;
constexpr int kProducerThreads = 32 * kProducerWarps;
constexpr int kAttentionThreads = kConsumerThreads + kProducerThreads;
constexpr int kConsumerBarrier = 1;
constexpr int kProducerBarrier = 2;
constexpr int kMaxStages = 8;
/// Blocks of a multiprocessor that the compiler divides the registers among (attention_blocks_a_multiprocessor).
#ifdef BATON_SM90A
constexpr int kCompiledResidents = 2;
#else
constexpr int kCompiledResidents = 1;
#endif

/// The description of a tile for the consumers. A producer writes it beside the queries.
struct TileTask {
  std::int32_t first_row = 0;
  std::int32_t n_token_rows = 0;  ///< 0: there is no more work
  std::int32_t first_partial = 0;
  std::int32_t is_direct = 0;
  std::int32_t kv_begin = 0;
  std::int32_t kv_end = 0;
  std::int32_t kv_head = 0;
  std::int32_t reserved = 0;  ///< keeps the following shared memory aligned to 16 bytes; always 0
};
static_assert(sizeof(TileTask) == 32);

/// A pair of an item and a KV head.
struct ItemPair {
  AttentionItem item;
  std::int32_t kv_head = 0;
  std::int32_t reserved[3] = {};
};
constexpr int kPairBatch = 32;  ///< number of pairs that are read together

/// First position of the stages of a run that begins at `kv_begin`, because whole granules of 16 tokens are copied.
__device__ __forceinline__ int first_stage_position(int kv_begin) { return kv_begin & ~15; }

/// Constants for the element types and the padded head size. T is the type of queries, and of the matmuls' operands
/// unless keys and values are e4m3: f16 holds each e4m3 number exactly, and one instruction converts two.
template <class T, int kDim, bool kFp8>
struct AttentionTile {
  using Element = T;
  using Operand = std::conditional_t<kFp8, __half, T>;
  /// Keys and values as the matmuls read them where producers convert e4m3 (attention/general/widen.cuh).
  using Wide = AttentionTile<Operand, kDim, false>;
  static constexpr int kHeadDim = kDim;
  static constexpr bool kIsFp8 = kFp8;
  static constexpr bool kAlignsStages = false;  ///< stages begin where an item does, in whole granules
  static constexpr int kStageTokens = kDim > 128 ? 16 : 64;
  static constexpr int kMaxRows = kAttentionTileRows;
  static constexpr bool kQueriesInRegisters = kDim <= 128;
#ifdef BATON_SM90A
  static constexpr bool kWgmma = !kFp8 && (kDim == 64 || kDim == 128);
#else
  static constexpr bool kWgmma = false;
#endif
  static constexpr bool kWidens = kFp8 && AttentionTile<Operand, kDim, false>::kWgmma;
  /// Of a producer thread; a consumer thread has the rest of 256.
  static constexpr int kProducerRegisters = kWidens ? 56 : 48;
  static constexpr int kRowBytes = kDim * (kFp8 ? 1 : 2);
  static constexpr int kPartBytes = kStageTokens * kRowBytes;
  static constexpr int kStageBytes = 2 * kPartBytes;
  static constexpr int kPanels = (kRowBytes + 127) / 128;
  static constexpr int kTailBytes = kRowBytes % 128;
  static constexpr int kGranules = kStageTokens / 16;
  static constexpr int kQueryStride = kDim * 2 + 16;
  static constexpr int kQueryBytes = kMaxRows * kQueryStride;
  // Scratch memory for joining token groups: 8 rows of each warp at a time, at most 128 columns.
  static constexpr int kColumns = kDim < 128 ? kDim : 128;
  static constexpr int kColumnStride = kColumns + 8;
  static constexpr int kScratchFloats = kConsumerWarps * 8 * kColumnStride;
  static constexpr int kFixedBytes = kQueryBytes + kScratchFloats * 4 + (kConsumerWarps * 16 + kMaxRows) * 8 + kMaxRows * 16 +
                                     2 * kPairBatch * static_cast<int>(sizeof(ItemPair)) + static_cast<int>(sizeof(TileTask)) +
                                     8 * ((kFp8 ? 3 : 2) * kMaxStages + 2);
  static_assert(kTailBytes == 0 || kTailBytes == 64);
  /// The fewest stages that let copies and matmuls overlap: two, or two pairs (run_e4m3_stages).
  static constexpr int kLeastStages = kFp8 ? 4 : 2;
  static constexpr bool kMayKeepScratchOutside = false;  ///< in device memory

  /// Where the stages of a run that begins at `kv_begin` begin.
  static __device__ __forceinline__ int first_position(int kv_begin) { return first_stage_position(kv_begin); }
  /// Address of a 16-byte chunk of a token's row in a part of a stage (kv_layout.h, with kStageTokens for block_len).
  static __device__ __forceinline__ std::uint32_t chunk_address(std::uint32_t part, int token, int chunk) {
    const int panel = chunk >> 3;
    const std::uint32_t base = part + panel * 128 * kStageTokens;
    if (kTailBytes != 0 && panel == kPanels - 1) return base + token * 64 + (((chunk & 3) ^ ((token >> 1) & 3)) << 4);
    return base + token * 128 + (((chunk & 7) ^ (token & 7)) << 4);
  }
};

/// Dynamic shared memory, in this order; stages begin at a multiple of 1024 bytes.
template <class Tile>
struct SharedLayout {
  std::uint32_t stages;
  std::byte* queries;
  float* scratch;
  float2* warp_states;  ///< (m, l) of each warp's 16 rows
  float2* row_states;   ///< of each row of the tile, joined
  TokenRow* rows;       ///< of the tile
  ItemPair* pairs;      ///< two batches
  TileTask* task;
  std::uint32_t full, empty, task_full, task_empty;
  std::uint32_t landed;  ///< of e4m3 tiles only: the bytes that a slot's f16 are made from have arrived

  /// `chunk_states`: AttentionParams::chunk_states.
  __device__ SharedLayout(std::byte* memory, const MemoryPlan& plan, std::byte* chunk_states) {
    stages = shared_address(memory);
    std::byte* at = memory + plan.n_stages * Tile::kStageBytes;
    const auto take = [&at](int n_bytes) {
      std::byte* const taken = at;
      at += n_bytes;
      return taken;
    };
    const int scratch_at = Tile::kQueriesInRegisters && plan.scratch_over_queries ? 0 : Tile::kQueryBytes;
    const bool is_outside = Tile::kMayKeepScratchOutside && plan.device_bytes > 0;
    queries = take(max(Tile::kQueryBytes, scratch_at + (is_outside ? 0 : Tile::kScratchFloats * 4)));
    scratch = reinterpret_cast<float*>(is_outside ? chunk_states : queries + scratch_at) +
              (is_outside ? blockIdx.x * Tile::kScratchFloats : 0);
    warp_states = reinterpret_cast<float2*>(take(kConsumerWarps * 16 * 8));
    row_states = reinterpret_cast<float2*>(take(Tile::kMaxRows * 8));
    rows = reinterpret_cast<TokenRow*>(take(Tile::kMaxRows * 16));
    pairs = reinterpret_cast<ItemPair*>(take(2 * kPairBatch * sizeof(ItemPair)));
    task = reinterpret_cast<TileTask*>(take(sizeof(TileTask)));
    full = shared_address(at);
    empty = full + 8 * kMaxStages;
    task_full = empty + 8 * kMaxStages;
    task_empty = task_full + 8;
    landed = task_empty + 8;
  }
};

/// Finds the (item, KV head) pairs of a block that the plan assigned to its worker (to several workers, if the
/// grid is smaller). The workers are those of one of the two kernels. If the plan assigns none, the block takes every
/// gridDim-th pair: shared items with all heads first, then the others head by head. A warp reads 32 pairs at a time,
/// one for each lane, because each of the dependent loads that lead to an item takes as long as a stage of keys.
class PairReader {
 public:
  __device__ PairReader(const StepArrays& step, int n_kv_heads, bool is_wide)
      : step_(step),
        n_kv_heads_(n_kv_heads),
        worker_(static_cast<int>(blockIdx.x) + (is_wide ? 0 : step.n_wide_workers)),
        end_worker_(is_wide && !step.has_wide_tiles ? step.n_wide_workers : step.n_workers) {
    if (step.n_workers > 0)
      open_worker();
    else
      at_ = static_cast<int>(blockIdx.x);
  }
  /// Reads a batch into `to`. A pair with no rows follows the last pair. Called by one warp.
  __device__ void read(ItemPair* to, int lane) {
    int n = 0;
    int item = 0;
    int kv_head = 0;
    if (step_.n_workers > 0) {
      while (at_ == end_ && worker_ < end_worker_) {
        worker_ += static_cast<int>(gridDim.x);
        open_worker();
      }
      n = min(kPairBatch, end_ - at_);
      if (lane < n) {
        const int pair = __ldg(step_.pairs + at_ + lane);
        item = pair / n_kv_heads_;
        kv_head = pair - item * n_kv_heads_;
      }
      at_ += n;
    } else {
      const int n_pairs = step_.n_items * n_kv_heads_;
      const int grid = static_cast<int>(gridDim.x);
      n = at_ < n_pairs ? min(kPairBatch, (n_pairs - at_ + grid - 1) / grid) : 0;
      const int pair = at_ + lane * grid;
      const int n_major_pairs = step_.n_item_major * n_kv_heads_;
      if (pair < n_major_pairs) {
        item = pair / n_kv_heads_;
        kv_head = pair - item * n_kv_heads_;
      } else if (pair < n_pairs) {
        const int n_alone = step_.n_items - step_.n_item_major;
        kv_head = (pair - n_major_pairs) / n_alone;
        item = step_.n_item_major + (pair - n_major_pairs) - kv_head * n_alone;
      }
      at_ += kPairBatch * grid;
    }
    auto* out = reinterpret_cast<int4*>(to + lane);
    const auto* from = reinterpret_cast<const int4*>(step_.items + item);
    out[0] = lane < n ? __ldg(from) : int4{};
    out[1] = lane < n ? __ldg(from + 1) : int4{};
    out[2] = {kv_head, 0, 0, 0};
  }

 private:
  __device__ void open_worker() {
    at_ = end_ = 0;
    if (worker_ >= end_worker_) return;
    at_ = __ldg(step_.worker_offsets + worker_);
    end_ = __ldg(step_.worker_offsets + worker_ + 1);
  }

  const StepArrays& step_;
  int n_kv_heads_;
  int worker_;
  int end_worker_;
  int at_ = 0;
  int end_ = 0;
};

/// A position in the ring of stages.
struct RingPosition {
  int stage = 0;
  int parity = 0;
  __device__ void advance(int n_stages) {
    if (++stage == n_stages) stage = 0, parity ^= 1;
  }
};

}  // namespace baton::cuda
