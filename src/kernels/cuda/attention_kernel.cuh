/// The attention kernel: a persistent grid over the work list of a step, one block a multiprocessor.
///
/// A block takes (item, KV head) pairs. Its last warp, the producer, copies queries and keys and values (stages of 64 tokens) to
/// shared memory, ahead of use and across items; eight consumer warps, two warpgroups, do the mathematics. A tile has up to 128 query
/// rows (token row x query head of the KV head). Few rows would leave warps idle, so the tokens are shared out instead:
///
///     query rows    16-row groups    token groups    tokens a step      products
///     1 to 16       1                8               16                 mma.sync
///     17 to 32      2                4               32                 mma.sync
///     33 to 64      4 (a warpgroup)  2               64 (a stage)       wgmma on sm_90a
///     65 to 128     8                1               64                 wgmma on sm_90a
///
/// Token groups end with states of their own, which are joined in order through shared memory. A tile leaves its output, or a partial
/// state; with counters, the block whose state completes a row merges it. Every order of summation follows from the item alone, so
/// neither the grid nor the arrival changes a bit. Sources: FlashAttention-2 (arXiv:2307.08691) for the running softmax, Flash-Decoding
/// and RelayAttention (arXiv:2402.14808) for the items.
#pragma once

#include <algorithm>

#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/attention_merge.cuh"
#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/mma.cuh"

namespace baton::cuda {

constexpr int kConsumerWarps = 8;
constexpr int kConsumerThreads = 32 * kConsumerWarps;
/// A third warpgroup, because registers are handed over by warpgroups; the producer is its first warp.
constexpr int kAttentionThreads = kConsumerThreads + 128;
constexpr int kConsumerBarrier = 1;
constexpr int kMaxStages = 8;

/// What follows from the element types and the padded head size. T is the type of queries and products.
template <class T, int kDim, bool kFp8>
struct AttentionTile {
  using Element = T;
  static constexpr int kHeadDim = kDim;
  static constexpr bool kIsFp8 = kFp8;
  static constexpr int kStageTokens = kDim > 128 ? 32 : 64;
  static constexpr int kMaxRows = kDim > 128 ? 64 : 128;
  static constexpr bool kQueriesInRegisters = kDim <= 128;
#ifdef BATON_SM90A
  static constexpr bool kWgmma = !kFp8 && (kDim == 64 || kDim == 128);
#else
  static constexpr bool kWgmma = false;
#endif
  static constexpr int kRowBytes = kDim * (kFp8 ? 1 : 2);
  static constexpr int kPartBytes = kStageTokens * kRowBytes;
  static constexpr int kStageBytes = 2 * kPartBytes;
  static constexpr int kPanels = (kRowBytes + 127) / 128;
  static constexpr int kTailBytes = kRowBytes % 128;
  static constexpr int kGranules = kStageTokens / 16;
  static constexpr int kPieces = kGranules * 2 * kPanels;
  static constexpr int kQueryStride = kDim * 2 + 16;
  static constexpr int kQueryBytes = kMaxRows * kQueryStride;
  // The exchange between token groups: 8 rows of each warp at a time, at most 128 columns.
  static constexpr int kColumns = kDim < 128 ? kDim : 128;
  static constexpr int kColumnStride = kColumns + 8;
  static constexpr int kScratchFloats =
      kConsumerWarps * 8 * kColumnStride > kMergeFloats ? kConsumerWarps * 8 * kColumnStride : kMergeFloats;
  static constexpr int kFixedBytes = kQueryBytes + kScratchFloats * 4 + (kConsumerWarps * 16 + kMaxRows) * 8 + 256 + 128 * 4;
  static_assert(kTailBytes == 0 || kTailBytes == 64);
  static_assert(kPieces <= 32);

  /// Address of a 16-byte chunk of a token's row in a part of a stage (kv_layout.h, with kStageTokens for block_len).
  static __device__ __forceinline__ std::uint32_t chunk_address(std::uint32_t part, int token, int chunk) {
    const int panel = chunk / 8;
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
  std::int32_t* finished_rows;
  std::uint32_t full, empty, query_full, query_empty;

  __device__ SharedLayout(std::byte* memory, int n_stages) {
    stages = shared_address(memory);
    std::byte* at = memory + n_stages * Tile::kStageBytes;
    queries = at;
    at += Tile::kQueryBytes;
    scratch = reinterpret_cast<float*>(at);
    at += Tile::kScratchFloats * 4;
    warp_states = reinterpret_cast<float2*>(at);
    at += kConsumerWarps * 16 * 8;
    row_states = reinterpret_cast<float2*>(at);
    at += Tile::kMaxRows * 8;
    finished_rows = reinterpret_cast<std::int32_t*>(at);
    at += 128 * 4;
    full = shared_address(at);
    empty = full + 8 * kMaxStages;
    query_full = empty + 8 * kMaxStages;
    query_empty = query_full + 8;
  }
};

/// The step's arrays of one layer group, found through the header on the device.
struct StepArrays {
  const AttentionItem* items;
  const std::int32_t* block_lists;
  const std::int32_t* merge_offsets;
  const std::int32_t* merge_slots;
  int n_items;
  int n_shared_items;

  __device__ explicit StepArrays(const AttentionParams& p) {
    const auto& sections = reinterpret_cast<const StepHeader*>(p.step)->groups[p.group];
    items = reinterpret_cast<const AttentionItem*>(p.step + sections.items.offset);
    n_items = sections.items.count;
    n_shared_items = sections.n_shared_items;
    block_lists = reinterpret_cast<const std::int32_t*>(p.step + sections.block_lists.offset);
    merge_offsets = reinterpret_cast<const std::int32_t*>(p.step + sections.merge_offsets.offset);
    merge_slots = reinterpret_cast<const std::int32_t*>(p.step + sections.merge_slots.offset);
  }
};

/// The pairs of a block. Shared items come first, each with all heads; then head after head the items of one sequence, so that
/// sequences that read the same blocks do it together. Rounds run there and back so that no block always gets the larger ones.
class PairCursor {
 public:
  __device__ PairCursor(const StepArrays& step, int n_kv_heads)
      : n_pairs_(step.n_items * n_kv_heads),
        n_shared_pairs_(step.n_shared_items * n_kv_heads),
        n_alone_(step.n_items - step.n_shared_items),
        n_kv_heads_(n_kv_heads) {
    find();
  }
  __device__ bool valid() const { return pair_ < n_pairs_; }
  __device__ int item() const { return item_; }
  __device__ int kv_head() const { return kv_head_; }
  __device__ void advance() {
    ++round_;
    find();
  }

 private:
  __device__ void find() {
    const int n = static_cast<int>(gridDim.x);
    const int i = static_cast<int>(blockIdx.x);
    pair_ = round_ * n + (round_ % 2 == 0 ? i : n - 1 - i);
    if (pair_ < n_shared_pairs_) {
      item_ = pair_ / n_kv_heads_;
      kv_head_ = pair_ - item_ * n_kv_heads_;
    } else if (pair_ < n_pairs_) {
      const int at = pair_ - n_shared_pairs_;
      kv_head_ = at / n_alone_;
      item_ = n_shared_pairs_ / n_kv_heads_ + at - kv_head_ * n_alone_;
    }
  }
  int n_pairs_;
  int n_shared_pairs_;
  int n_alone_;
  int n_kv_heads_;
  int round_ = 0;
  int pair_ = 0;
  int item_ = 0;
  int kv_head_ = 0;
};

__device__ __forceinline__ AttentionItem load_item(const AttentionItem* item) {
  AttentionItem loaded;
  *reinterpret_cast<int4*>(&loaded) = __ldg(reinterpret_cast<const int4*>(item));
  *(reinterpret_cast<int4*>(&loaded) + 1) = __ldg(reinterpret_cast<const int4*>(item) + 1);
  return loaded;
}

/// A position in the ring of stages.
struct RingPosition {
  int slot = 0;
  int parity = 0;
  __device__ void advance(int n_stages) {
    if (++slot == n_stages) slot = 0, parity ^= 1;
  }
};

/// First position of an item's stages: whole granules of 16 tokens are copied.
__device__ __forceinline__ int first_stage_position(const AttentionItem& item) { return item.kv_begin & ~15; }

// --- the producer ---

template <class Tile>
class Producer {
 public:
  __device__ Producer(const AttentionParams& p, const SharedLayout<Tile>& shared, int n_stages)
      : p_(p), shared_(shared), n_stages_(n_stages), lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    const StepArrays step(p_);
    PairCursor cursor(step, p_.n_kv_heads);
    if (!cursor.valid()) return;
    AttentionItem item = load_item(step.items + cursor.item());
    const int group = p_.n_heads / p_.n_kv_heads;
    const int tile_rows = Tile::kMaxRows / group;
    while (cursor.valid()) {
      const int kv_head = cursor.kv_head();
      cursor.advance();
      AttentionItem next = item;
      if (cursor.valid()) next = load_item(step.items + cursor.item());
      for (int row = 0; row < item.n_rows; row += tile_rows) {
        copy_queries(item.first_row + row, min(tile_rows, item.n_rows - row), kv_head, group);
        copy_keys_and_values(item, step.block_lists + item.block_list, kv_head);
      }
      item = next;
    }
  }

 private:
  __device__ void copy_queries(int first_row, int n_rows, int kv_head, int group) {
    const int n = n_rows * group;
    const int row_bytes = p_.head_dim * 2;
    barrier_wait(shared_.query_empty, query_parity_ ^ 1);
    query_parity_ ^= 1;
    copy_begin(shared_.query_full, n * row_bytes, lane_);
    const std::uint32_t to = shared_address(shared_.queries);
    for (int r = lane_; r < n; r += 32) {
      const std::int64_t head = static_cast<std::int64_t>(first_row + r / group) * p_.n_heads + kv_head * group + r % group;
      copy_piece(to + r * Tile::kQueryStride, p_.q + head * row_bytes, row_bytes, shared_.query_full);
    }
    copy_end(shared_.query_full);
  }

  __device__ void copy_keys_and_values(const AttentionItem& item, const std::int32_t* list, int kv_head) {
    const int begin = first_stage_position(item);
    const int first_block = item.kv_begin >> p_.block_shift;
    const int n_granules = (item.kv_end - begin + 15) / 16;
    // Which piece of a stage this lane copies: K or V of a granule, one panel.
    const int granule = lane_ / (2 * Tile::kPanels);
    const int part = lane_ / Tile::kPanels % 2;
    const int panel = lane_ % Tile::kPanels;
    const int piece_row = Tile::kTailBytes != 0 && panel == Tile::kPanels - 1 ? Tile::kTailBytes : 128;
    const std::byte* source = p_.kv + (static_cast<std::int64_t>(part) * p_.n_kv_heads + kv_head) * p_.tile_bytes +
                              static_cast<std::int64_t>(panel * 128) * (1 << p_.block_shift);
    const std::uint32_t target = part * Tile::kPartBytes + panel * 128 * Tile::kStageTokens + granule * 16 * piece_row;
    // Block ids of 32 granules at a time, one a lane, loaded a batch ahead.
    int ids = load_id(list, begin, first_block, n_granules, 0);
    int next_ids = load_id(list, begin, first_block, n_granules, 32);
    for (int stage = 0; stage * Tile::kGranules < n_granules; ++stage) {
      const int first = stage * Tile::kGranules;
      const int n = min(Tile::kGranules, n_granules - first);
      if (first % 32 == 0 && first > 0) {
        ids = next_ids;
        next_ids = load_id(list, begin, first_block, n_granules, first + 32);
      }
      const int block = __shfl_sync(~0u, ids, (first + granule) % 32);
      const std::uint32_t full = shared_.full + 8 * ring_.slot;
      barrier_wait(shared_.empty + 8 * ring_.slot, ring_.parity ^ 1);
      copy_begin(full, n * 2 * 16 * Tile::kRowBytes, lane_);
      if (lane_ < Tile::kPieces && granule < n) {
        const int token = (begin + (first + granule) * 16) & ((1 << p_.block_shift) - 1);
        copy_piece(shared_.stages + ring_.slot * Tile::kStageBytes + target,
                   source + block * p_.block_bytes + token * piece_row, 16 * piece_row, full);
      }
      copy_end(full);
      ring_.advance(n_stages_);
    }
  }

  __device__ int load_id(const std::int32_t* list, int begin, int first_block, int n_granules, int first) const {
    const int granule = first + lane_;
    return granule < n_granules ? __ldg(list + (((begin + granule * 16) >> p_.block_shift) - first_block)) : 0;
  }

  const AttentionParams& p_;
  const SharedLayout<Tile>& shared_;
  int n_stages_;
  int lane_;
  int query_parity_ = 0;
  RingPosition ring_;
};

// --- the consumers ---

template <class Tile>
class Consumer {
  using T = typename Tile::Element;
  static constexpr int kDim = Tile::kHeadDim;
  static constexpr int kColumnTiles = kDim / 8;  // of the output, 8 wide
  static constexpr int kKSteps = kDim / 16;

 public:
  __device__ Consumer(const AttentionParams& p, const SharedLayout<Tile>& shared, int n_stages)
      : p_(p), shared_(shared), n_stages_(n_stages), thread_(static_cast<int>(threadIdx.x)), lane_(thread_ % 32), warp_(thread_ / 32) {}

  __device__ void run() {
    const StepArrays step(p_);
    PairCursor cursor(step, p_.n_kv_heads);
    if (!cursor.valid()) return;
    AttentionItem item = load_item(step.items + cursor.item());
    group_ = p_.n_heads / p_.n_kv_heads;
    const int tile_rows = Tile::kMaxRows / group_;
    while (cursor.valid()) {
      kv_head_ = cursor.kv_head();
      cursor.advance();
      AttentionItem next = item;
      if (cursor.valid()) next = load_item(step.items + cursor.item());
      for (int row = 0; row < item.n_rows; row += tile_rows) {
        first_row_ = item.first_row + row;
        n_token_rows_ = min(tile_rows, item.n_rows - row);
        first_partial_ = item.first_partial + row;
        run_tile(item);
        if (p_.counters != nullptr && (item.flags & AttentionItem::direct) == 0) merge_finished_rows(step);
      }
      item = next;
    }
  }

 private:
  __device__ void run_tile(const AttentionItem& item) {
    n_rows_ = n_token_rows_ * group_;
    find_bounds(item);
    barrier_wait(shared_.query_full, query_parity_);
    query_parity_ ^= 1;
    row_groups_ = n_rows_ <= 16 ? 1 : n_rows_ <= 32 ? 2 : n_rows_ <= 64 ? 4 : 8;
    token_groups_ = kConsumerWarps / row_groups_;
    row_group_ = row_groups_ == 8 ? warp_ : warp_ % 4 % row_groups_;
    token_group_ = row_groups_ == 8 ? 0 : warp_ / 4 * (4 / row_groups_) + warp_ % 4 / row_groups_;
    load_row_bounds(item);
    if constexpr (Tile::kQueriesInRegisters) {
#pragma unroll
      for (int k = 0; k < kKSteps; ++k) load_queries(queries_[k], k);
      release(shared_.query_empty);
    }
    max_[0] = max_[1] = -INFINITY;
    sum_[0] = sum_[1] = 0;
#pragma unroll
    for (int i = 0; i < kColumnTiles; ++i) out_[i][0] = out_[i][1] = out_[i][2] = out_[i][3] = 0;
    if (row_groups_ == 1)
      run_stages<16>(item);
    else if (row_groups_ == 2)
      run_stages<32>(item);
    else
      run_stages<Tile::kStageTokens>(item);
    if constexpr (!Tile::kQueriesInRegisters) release(shared_.query_empty);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum_[half] += __shfl_xor_sync(~0u, sum_[half], 1);
      sum_[half] += __shfl_xor_sync(~0u, sum_[half], 2);
    }
    if (token_groups_ > 1)
      join_token_groups(item);
    else
      write_rows(item);
  }

  /// The positions that every row of the tile sees, [inner_lo_, inner_hi_), and that some row sees, [hull_lo_, hull_hi_).
  __device__ void find_bounds(const AttentionItem& item) {
    int lo_max = 0, hi_min = 0x7fffffff, lo_min = 0x7fffffff, hi_max = 0;
    for (int i = lane_; i < n_token_rows_; i += 32) {
      const int4 row = __ldg(reinterpret_cast<const int4*>(p_.rows + first_row_ + i));
      lo_max = max(lo_max, row.z);
      hi_min = min(hi_min, row.w);
      if (row.w > row.z) {
        lo_min = min(lo_min, row.z);
        hi_max = max(hi_max, row.w);
      }
    }
    inner_lo_ = max(item.kv_begin, __reduce_max_sync(~0u, lo_max));
    inner_hi_ = min(item.kv_end, __reduce_min_sync(~0u, hi_min));
    hull_lo_ = max(item.kv_begin, __reduce_min_sync(~0u, lo_min));
    hull_hi_ = min(item.kv_end, __reduce_max_sync(~0u, hi_max));
  }

  /// What this thread's two rows see; rows past the tile's last see what its last does.
  __device__ void load_row_bounds(const AttentionItem& item) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = min(row_group_ * 16 + half * 8 + lane_ / 4, n_rows_ - 1);
      const int4 row = __ldg(reinterpret_cast<const int4*>(p_.rows + first_row_ + r / group_));
      row_lo_[half] = max(item.kv_begin, row.z);
      row_hi_[half] = min(item.kv_end, row.w);
    }
  }

  /// Operand A of k step `k`: queries of this warp's 16 rows, zeros past head_dim. For 8-bit keys the 16 dimensions of a step are
  /// dealt out four to a lane, as their bytes lie.
  __device__ __forceinline__ void load_queries(std::uint32_t (&a)[4], int k) {
    const std::byte* base = shared_.queries + row_group_ * 16 * Tile::kQueryStride;
    if constexpr (Tile::kIsFp8) {
      const std::byte* at = base + lane_ / 4 * Tile::kQueryStride + (k * 16 + lane_ % 4 * 4) * 2;
      const uint2 low = *reinterpret_cast<const uint2*>(at);
      const uint2 high = *reinterpret_cast<const uint2*>(at + 8 * Tile::kQueryStride);
      a[0] = low.x, a[1] = high.x, a[2] = low.y, a[3] = high.y;
      if (k * 16 + lane_ % 4 * 4 >= p_.head_dim) a[0] = a[1] = a[2] = a[3] = 0;
    } else {
      load_matrices(a, shared_address(base) + lane_ % 16 * Tile::kQueryStride + (k * 16 + lane_ / 16 * 8) * 2);
      if (k * 16 >= p_.head_dim) a[0] = a[1] = 0;
      if (k * 16 + 8 >= p_.head_dim) a[2] = a[3] = 0;
    }
  }

  __device__ __forceinline__ void release(std::uint32_t barrier) {
    __syncwarp();
    if (lane_ == 0) barrier_arrive(barrier);
  }

  template <int kTokens>
  __device__ __forceinline__ void run_stages(const AttentionItem& item) {
    constexpr int kSteps = Tile::kStageTokens / kTokens;  // of a stage, each one token group's
    int position = first_stage_position(item);
    for (int stage = 0; position < item.kv_end; ++stage, position += Tile::kStageTokens) {
      barrier_wait(shared_.full + 8 * ring_.slot, ring_.parity);
      const int mine = (token_group_ - stage * kSteps) & (token_groups_ - 1);
      if (mine < kSteps) {
        const int at = position + mine * kTokens;
        if (at < hull_hi_ && at + kTokens > hull_lo_)
          step<kTokens>(shared_.stages + ring_.slot * Tile::kStageBytes, mine * kTokens, at);
      }
      release(shared_.empty + 8 * ring_.slot);
      ring_.advance(n_stages_);
    }
  }

  /// Takes kTokens tokens from `token` of the stage at `part`, which stand at `position`, into the running state.
  template <int kTokens>
  __device__ __forceinline__ void step(std::uint32_t part, int token, int position) {
    float scores[kTokens / 8][4];
    const bool masks_rows = position < inner_lo_ || position + kTokens > inner_hi_;
    const bool masks_values = position < hull_lo_ || position + kTokens > hull_hi_;
    const std::uint32_t values = part + Tile::kPartBytes;
#ifdef BATON_SM90A
    if constexpr (Tile::kWgmma && kTokens == 64) {
      if (!masks_values) {
        wgmma_own(scores);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kKSteps; ++k)
          wgmma_64x64x16<T>(scores, queries_[k], wgmma_descriptor(part + k / 4 * 128 * 64 + k % 4 * 32, 16, 1024), k > 0);
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_own(scores);
        weigh<kTokens>(scores, position, masks_rows);
        std::uint32_t weights[4][4];
#pragma unroll
        for (int k = 0; k < 4; ++k) pack_weights(weights[k], scores[2 * k], scores[2 * k + 1]);
        wgmma_own(out_);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k)
          wgmma_transposed<T>(out_, weights[k], wgmma_descriptor(values + k * 16 * 128, 128 * 64, 1024));
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_own(out_);
        return;
      }
    }
#endif
    multiply_keys<kTokens>(scores, part, token);
    weigh<kTokens>(scores, position, masks_rows);
    multiply_values<kTokens>(scores, values, token, position, masks_values);
  }

  template <int kTokens>
  __device__ __forceinline__ void multiply_keys(float (&scores)[kTokens / 8][4], std::uint32_t part, int token) {
#pragma unroll
    for (int i = 0; i < kTokens / 8; ++i) scores[i][0] = scores[i][1] = scores[i][2] = scores[i][3] = 0;
    const int matrix = lane_ / 8;
    constexpr int kChunkStep = Tile::kIsFp8 ? 2 : 1;  // k steps that one load of keys serves
#pragma unroll
    for (int k = 0; k < kKSteps; k += kChunkStep) {
      std::uint32_t a[kChunkStep][4];
#pragma unroll
      for (int j = 0; j < kChunkStep; ++j) {
        if constexpr (Tile::kQueriesInRegisters) {
#pragma unroll
          for (int i = 0; i < 4; ++i) a[j][i] = queries_[k + j][i];
        } else {
          load_queries(a[j], k + j);
        }
      }
#pragma unroll
      for (int t = 0; t < kTokens / 16; ++t) {
        std::uint32_t b[4];
        if constexpr (Tile::kIsFp8) {
          load_matrices(b, Tile::chunk_address(part, token + t * 16 + matrix % 2 * 8 + lane_ % 8, k + matrix / 2));
#pragma unroll
          for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const std::uint32_t bytes = b[2 * j + i];
              multiply_16x8x16<T>(scores[2 * t + i], a[j], e4m3_pair_to_bf16(__byte_perm(bytes, 0, 0x1404)),
                                  e4m3_pair_to_bf16(__byte_perm(bytes, 0, 0x3424)));
            }
        } else {
          load_matrices(b, Tile::chunk_address(part, token + t * 16 + matrix / 2 * 8 + lane_ % 8, 2 * k + matrix % 2));
          multiply_16x8x16<T>(scores[2 * t], a[0], b[0], b[1]);
          multiply_16x8x16<T>(scores[2 * t + 1], a[0], b[2], b[3]);
        }
      }
    }
  }

  /// Scores to weights exp2(score - maximum), hidden ones to 0; the running maximum and sum, and the output so far, follow.
  template <int kTokens>
  __device__ __forceinline__ void weigh(float (&scores)[kTokens / 8][4], int position, bool masks_rows) {
    if (p_.has_softcap) {
#pragma unroll
      for (int i = 0; i < kTokens / 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) scores[i][j] = tanhf(scores[i][j] * p_.score_scale);
    }
    if (masks_rows) {
      const int first = position + lane_ % 4 * 2;
#pragma unroll
      for (int i = 0; i < kTokens / 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int at = first + i * 8 + j % 2;
          if (at < row_lo_[j / 2] || at >= row_hi_[j / 2]) scores[i][j] = -INFINITY;
        }
    }
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float m = scores[0][2 * half];
#pragma unroll
      for (int i = 0; i < kTokens / 8; ++i) m = fmaxf(m, fmaxf(scores[i][2 * half], scores[i][2 * half + 1]));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      const float new_max = fmaxf(max_[half], m * p_.score_log2);
      const float base = new_max == -INFINITY ? 0.0f : new_max;
      factor[half] = exp2_approx(max_[half] - base);
      max_[half] = new_max;
      float l = 0;
#pragma unroll
      for (int i = 0; i < kTokens / 8; ++i)
#pragma unroll
        for (int j = 2 * half; j < 2 * half + 2; ++j) {
          scores[i][j] = exp2_approx(fmaf(scores[i][j], p_.score_log2, -base));
          l += scores[i][j];
        }
      sum_[half] = sum_[half] * factor[half] + l;
    }
    if (__any_sync(~0u, factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
      for (int i = 0; i < kColumnTiles; ++i) {
        out_[i][0] *= factor[0];
        out_[i][1] *= factor[0];
        out_[i][2] *= factor[1];
        out_[i][3] *= factor[1];
      }
    }
  }

  __device__ __forceinline__ static void pack_weights(std::uint32_t (&a)[4], const float (&low)[4], const float (&high)[4]) {
    a[0] = pack_pair<T>(low[0], low[1]);
    a[1] = pack_pair<T>(low[2], low[3]);
    a[2] = pack_pair<T>(high[0], high[1]);
    a[3] = pack_pair<T>(high[2], high[3]);
  }

  /// Values of tokens outside the hull may be anything, NaN too: they are taken as zero.
  template <int kTokens>
  __device__ __forceinline__ void multiply_values(const float (&scores)[kTokens / 8][4], std::uint32_t part, int token, int position,
                                                  bool masks_values) {
    const int matrix = lane_ / 8;
#pragma unroll
    for (int t = 0; t < kTokens / 16; ++t) {
      std::uint32_t a[4];
      pack_weights(a, scores[2 * t], scores[2 * t + 1]);
      std::uint32_t keep[2] = {~0u, ~0u};
      if (masks_values) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int at = position + t * 16 + i * 8 + lane_ % 4 * 2;
          keep[i] = (at >= hull_lo_ && at < hull_hi_ ? 0x0000ffffu : 0u) | (at + 1 >= hull_lo_ && at + 1 < hull_hi_ ? 0xffff0000u : 0u);
        }
      }
      const int row = token + t * 16 + matrix % 2 * 8 + lane_ % 8;
      if constexpr (Tile::kIsFp8) {
#pragma unroll
        for (int c = 0; c < kDim / 16; c += 2) {
          std::uint32_t b[4];
          load_matrices_transposed(b, Tile::chunk_address(part, row, c + matrix / 2));
#pragma unroll
          for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
              const int selector = odd == 0 ? 0x2404 : 0x3414;
              multiply_16x8x16<T>(out_[2 * (c + j) + odd], a, e4m3_pair_to_bf16(__byte_perm(b[2 * j] & keep[0], 0, selector)),
                                  e4m3_pair_to_bf16(__byte_perm(b[2 * j + 1] & keep[1], 0, selector)));
            }
        }
      } else {
#pragma unroll
        for (int c = 0; c < kDim / 16; ++c) {
          std::uint32_t b[4];
          load_matrices_transposed(b, Tile::chunk_address(part, row, 2 * c + matrix / 2));
          multiply_16x8x16<T>(out_[2 * c], a, b[0] & keep[0], b[1] & keep[1]);
          multiply_16x8x16<T>(out_[2 * c + 1], a, b[2] & keep[0], b[3] & keep[1]);
        }
      }
    }
  }

  /// This thread's outputs of 16 columns from 16 * c of one of its two rows, as (column, two or four neighbours).
  template <class Store>
  __device__ __forceinline__ void for_columns(int c, int half, const Store& store) const {
    const float* low = out_[2 * c] + 2 * half;
    const float* high = out_[2 * c + 1] + 2 * half;
    if constexpr (Tile::kIsFp8) {
      store(16 * c + lane_ % 4 * 4, make_float2(low[0], high[0]));
      store(16 * c + lane_ % 4 * 4 + 2, make_float2(low[1], high[1]));
    } else {
      store(16 * c + lane_ % 4 * 2, make_float2(low[0], low[1]));
      store(16 * c + lane_ % 4 * 2 + 8, make_float2(high[0], high[1]));
    }
  }

  /// Joins the states of the warps that hold the same rows, in the order of token groups, and writes the tile.
  __device__ void join_token_groups(const AttentionItem& item) {
    if (lane_ % 4 == 0) {
      shared_.warp_states[warp_ * 16 + lane_ / 4] = {max_[0], sum_[0]};
      shared_.warp_states[warp_ * 16 + 8 + lane_ / 4] = {max_[1], sum_[1]};
    }
    named_barrier(kConsumerBarrier, kConsumerThreads);
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = half * 8 + lane_ / 4;
      float m = -INFINITY;
      for (int i = 0; i < token_groups_; ++i) m = fmaxf(m, shared_.warp_states[warp_of(i) * 16 + row].x);
      const float base = m == -INFINITY ? 0.0f : m;
      float l = 0;
      for (int i = 0; i < token_groups_; ++i) {
        const float2 state = shared_.warp_states[warp_of(i) * 16 + row];
        l += state.y * exp2_approx(state.x - base);
      }
      factor[half] = exp2_approx(max_[half] - base);
      if (token_group_ == 0 && lane_ % 4 == 0) shared_.row_states[row_group_ * 16 + row] = {m, l};
    }
    for (int pass = 0; pass < 2 * (kDim / Tile::kColumns); ++pass) {
      const int half = pass % 2;
      const int column0 = pass / 2 * Tile::kColumns;
      if (half == 1 && n_rows_ <= 8) continue;
      float* mine = shared_.scratch + (warp_ * 8 + lane_ / 4) * Tile::kColumnStride;
      if (row_group_ * 16 + half * 8 + lane_ / 4 < n_rows_) {
#pragma unroll
        for (int c = 0; c < kDim / 16; ++c) {
          if (c * 16 / Tile::kColumns != pass / 2) continue;
          const auto put = [&](int column, float2 x) {
            const float f = factor[half];
            *reinterpret_cast<float2*>(mine + column - column0) = {x.x * f, x.y * f};
          };
          if (half == 0)
            for_columns(c, 0, put);
          else
            for_columns(c, 1, put);
        }
      }
      named_barrier(kConsumerBarrier, kConsumerThreads);
      constexpr int kVectors = Tile::kColumns / 4;
      for (int i = thread_; i < row_groups_ * 8 * kVectors; i += kConsumerThreads) {
        const int row8 = i / kVectors;
        const int column = i % kVectors * 4;
        const int row = row8 / 8 * 16 + half * 8 + row8 % 8;
        if (row >= n_rows_) continue;
        float4 sum = {0, 0, 0, 0};
        for (int t = 0; t < token_groups_; ++t) {
          const float4 part = *reinterpret_cast<const float4*>(
              shared_.scratch + (warp_of(t, row8 / 8) * 8 + row8 % 8) * Tile::kColumnStride + column);
          sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
        }
        write_four(item, row, column0 + column, sum, shared_.row_states[row]);
      }
      named_barrier(kConsumerBarrier, kConsumerThreads);
    }
  }
  __device__ int warp_of(int token_group, int row_group) const {
    const int of_warpgroup = 4 / row_groups_;
    return token_group / of_warpgroup * 4 + token_group % of_warpgroup * row_groups_ + row_group;
  }
  __device__ int warp_of(int token_group) const { return warp_of(token_group, row_group_); }

  __device__ __forceinline__ std::int64_t head_index(std::int64_t row, int tile_row) const {
    return (row + tile_row / group_) * p_.n_heads + kv_head_ * group_ + tile_row % group_;
  }

  __device__ __forceinline__ void write_four(const AttentionItem& item, int row, int column, float4 x, float2 state) {
    if (column >= p_.head_dim) return;
    if ((item.flags & AttentionItem::direct) != 0) {
      const float factor = state.y > 0 ? p_.v_scale / state.y : 0.0f;
      store_output<T>(p_, head_index(first_row_, row) * p_.head_dim + column,
                      {x.x * factor, x.y * factor, x.z * factor, x.w * factor});
    } else {
      const std::int64_t index = head_index(first_partial_, row);
      *reinterpret_cast<float4*>(p_.part_o + index * p_.head_dim + column) = x;
      if (column == 0) {
        p_.part_m[index] = state.x;
        p_.part_l[index] = state.y;
      }
    }
  }

  /// Writes the tile from the registers of the warps that hold its rows alone.
  __device__ void write_rows(const AttentionItem& item) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_group_ * 16 + half * 8 + lane_ / 4;
      if (row >= n_rows_) continue;
      if ((item.flags & AttentionItem::direct) != 0) {
        const float factor = sum_[half] > 0 ? p_.v_scale / sum_[half] : 0.0f;
        const std::int64_t base = head_index(first_row_, row) * p_.head_dim;
#pragma unroll
        for (int c = 0; c < kDim / 16; ++c)
          for_columns(c, half, [&](int column, float2 x) {
            if (column >= p_.head_dim) return;
            if (p_.out_is_f32)
              *reinterpret_cast<float2*>(p_.out + (base + column) * 4) = {x.x * factor, x.y * factor};
            else
              *reinterpret_cast<std::uint32_t*>(p_.out + (base + column) * 2) = pack_pair<T>(x.x * factor, x.y * factor);
          });
      } else {
        const std::int64_t index = head_index(first_partial_, row);
#pragma unroll
        for (int c = 0; c < kDim / 16; ++c)
          for_columns(c, half, [&](int column, float2 x) {
            if (column < p_.head_dim) *reinterpret_cast<float2*>(p_.part_o + index * p_.head_dim + column) = x;
          });
        if (lane_ % 4 == 0) {
          p_.part_m[index] = max_[half];
          p_.part_l[index] = sum_[half];
        }
      }
    }
  }

  /// Counts this tile's states in, and merges the rows whose last state it was.
  __device__ void merge_finished_rows(const StepArrays& step) {
    named_barrier(kConsumerBarrier, kConsumerThreads);  // all of the tile's states are written
    if (thread_ < n_token_rows_) {
      const int row = first_row_ + thread_;
      const unsigned last = static_cast<unsigned>(__ldg(step.merge_offsets + row + 1) - __ldg(step.merge_offsets + row)) - 1;
      __threadfence();
      // Wraps to zero with the last arrival, so the counter is ready for the next launch.
      const unsigned before = atomicInc(reinterpret_cast<unsigned*>(p_.counters) + static_cast<std::int64_t>(row) * p_.n_kv_heads + kv_head_, last);
      __threadfence();
      shared_.finished_rows[thread_] = before == last;
    }
    named_barrier(kConsumerBarrier, kConsumerThreads);
    for (int i = 0; i < n_token_rows_; ++i) {
      if (shared_.finished_rows[i] == 0) continue;
      const int begin = __ldg(step.merge_offsets + first_row_ + i);
      const int end = __ldg(step.merge_offsets + first_row_ + i + 1);
      merge_row<T>(p_, step.merge_slots + begin, end - begin, first_row_ + i, kv_head_, shared_.scratch, thread_, kConsumerBarrier);
    }
  }

  const AttentionParams& p_;
  const SharedLayout<Tile>& shared_;
  int n_stages_;
  int thread_;
  int lane_;
  int warp_;
  int query_parity_ = 0;
  RingPosition ring_;

  // The tile at work.
  int group_ = 1;
  int kv_head_ = 0;
  int first_row_ = 0;
  int n_token_rows_ = 0;
  int first_partial_ = 0;
  int n_rows_ = 0;
  int row_groups_ = 1, token_groups_ = 1, row_group_ = 0, token_group_ = 0;
  int inner_lo_ = 0, inner_hi_ = 0, hull_lo_ = 0, hull_hi_ = 0;
  int row_lo_[2], row_hi_[2];
  std::uint32_t queries_[Tile::kQueriesInRegisters ? kKSteps : 1][4];
  float out_[kColumnTiles][4];
  float max_[2], sum_[2];
};

template <class T, int kDim, bool kFp8>
__global__ void __launch_bounds__(kAttentionThreads, 1) attention_kernel(const __grid_constant__ AttentionParams p, int n_stages) {
  using Tile = AttentionTile<T, kDim, kFp8>;
  extern __shared__ __align__(1024) std::byte memory[];
  const SharedLayout<Tile> shared(memory, n_stages);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < n_stages; ++i) {
      barrier_init(shared.full + 8 * i, kCopyArrivals);
      barrier_init(shared.empty + 8 * i, kConsumerWarps);
    }
    barrier_init(shared.query_full, kCopyArrivals);
    barrier_init(shared.query_empty, kConsumerWarps);
    barriers_initialised();
  }
  __syncthreads();
  if (warp >= kConsumerWarps) {
    give_registers<40>();
    if (warp == kConsumerWarps) {
      Producer<Tile> producer(p, shared, n_stages);
      producer.run();
    }
  } else {
    take_registers<232>();
    Consumer<Tile> consumer(p, shared, n_stages);
    consumer.run();
  }
}

template <class T, int kDim, bool kFp8>
void launch_attention(const AttentionParams& params, const Device& device, int n_blocks) {
  using Tile = AttentionTile<T, kDim, kFp8>;
  const auto free_bytes = static_cast<int>(device.max_shared_bytes) - Tile::kFixedBytes;
  const int n_stages = std::min(free_bytes / Tile::kStageBytes, kMaxStages);
  check(n_stages >= 2, "attention: this device has too little shared memory a block");
  const int shared_bytes = Tile::kFixedBytes + n_stages * Tile::kStageBytes;
  auto* kernel = attention_kernel<T, kDim, kFp8>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "attention: shared memory");
  kernel<<<n_blocks, kAttentionThreads, shared_bytes, device.stream>>>(params, n_stages);
  check_launch("attention");
}

}  // namespace baton::cuda
