/// The producer warps of the wide attention kernel: one copies keys and values in bulk, three copy queries.
#pragma once

#include "kernels/cuda/attention/step.cuh"
#include "kernels/cuda/attention/wide/tile.cuh"
#include "kernels/cuda/attention/wide/widen.cuh"
#include "kernels/cuda/device/launch.cuh"

#ifdef BATON_SM90A

namespace baton::cuda {

/// Arrives and makes the barrier's phase wait for so many bytes of bulk copies.
__device__ __forceinline__ void arrive_expecting(std::uint32_t barrier, int n_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(n_bytes) : "memory");
}
/// Copies a multiple of 16 bytes; the barrier counts them.
__device__ __forceinline__ void copy_bulk(std::uint32_t to, const void* from, int n_bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(n_bytes), "r"(barrier)
               : "memory");
}

template <class Tile>
class WideProducer {
 public:
  __device__ WideProducer(const AttentionParams& p, const WideMemory<Tile>& memory)
      : p_(p),
        memory_(memory),
        thread_(static_cast<int>(threadIdx.x) - 32 * Tile::kConsumerWarps),
        lane_(thread_ % 32),
        group_(p.n_heads / p.n_kv_heads),
        widener_(memory, thread_ - 32) {}

  /// The key warp and the query warps go through the same tiles, each at its own pace.
  __device__ void run() {
    const StepArrays step(p_);
    PairReader reader(step, p_.n_kv_heads, true);
    const int tile_rows = Tile::kRows / group_;
    read_batch(reader, 0);
#pragma unroll 1
    for (int i = 0; memory_.pairs[i].item.n_rows > 0;) {
      const ItemPair pair = memory_.pairs[i];  // a copy: the next batch may overwrite it
      i = (i + 1) % (2 * kPairBatch);
      if (i % kPairBatch == 0) read_batch(reader, i);
#pragma unroll 1
      for (int row = 0; row < pair.item.n_rows; row += tile_rows) {
        const int n_token_rows = min(tile_rows, pair.item.n_rows - row);
        if (thread_ < 32)
          copy_keys(step, pair, row, n_token_rows);
        else
          copy_task(pair, row, n_token_rows);
        if constexpr (Tile::kIsFp8)
          if (thread_ >= 32) widener_.widen_tile(p_, pair.item, row, n_token_rows);
      }
    }
    if (thread_ >= 32) copy_task(ItemPair{}, 0, 0);
    wait_for_copies();
  }

 private:
  __device__ void read_batch(PairReader& reader, int first) {
    if (thread_ < 32) reader.read(memory_.pairs + first, thread_);
    named_barrier(kProducerBarrier, kProducerThreads);
  }

  /// Copies a tile's stages, the last one first, so that only the first steps of a causal tile need its bounds; by chunks
  /// the first one first. Each lane copies the panel of 16 tokens.
  __device__ __forceinline__ void copy_keys(const StepArrays& step, const ItemPair& pair, int row, int n_token_rows) {
    const AttentionItem& item = pair.item;
    const TileBounds<Tile> bounds(p_.rows + item.first_row + row, n_token_rows, item.kv_begin, item.kv_end, lane_);
    const StageRing& ring = memory_.copies;
    constexpr int kPanelRow = Tile::kCopiedPanelRow;
    const int granule = lane_ / Tile::kCopiedPanels;
    const int panel = lane_ % Tile::kCopiedPanels;
    const bool has_part = granule < Tile::kStageTokens / 16;
    const std::int64_t values = p_.n_kv_heads * p_.tile_bytes;
    const std::byte* const head =
        p_.kv + pair.kv_head * p_.tile_bytes + (static_cast<std::int64_t>(panel * 128) << p_.block_shift);
    const int* const list = step.block_lists + item.block_list - (item.kv_begin >> p_.block_shift);
    const auto block_at = [&](int position) {
      const bool has_some = has_part && position + 16 > bounds.hull_lo && position < bounds.hull_hi;
      return has_some ? __ldg(list + (position >> p_.block_shift)) : -1;
    };
    constexpr int kNext = Tile::kByChunks ? Tile::kStageTokens : -Tile::kStageTokens;
    const int begin = bounds.begin();
    const int last = bounds.last();
    int position = Tile::kByChunks ? begin : last;  // of the stage
    int block = block_at(position + granule * 16);
#pragma unroll 1
    for (; Tile::kByChunks ? position <= last : position >= begin; position += kNext) {
      const int mine = position + granule * 16;
      const int next_block = block_at(mine + kNext);
      const int first = clamp(bounds.hull_lo - mine), end = clamp(bounds.hull_hi - mine);  // tokens that count
      const int n_granules =
          (min(Tile::kStageTokens, bounds.hull_hi - position) + 15) / 16 - max(0, bounds.hull_lo - position) / 16;
      const int n_tokens = min(position + Tile::kStageTokens, bounds.hull_hi) - max(position, bounds.hull_lo);
      const std::byte* from = head + block * p_.block_bytes + (mine & ((1 << p_.block_shift) - 1)) * kPanelRow;
      const std::uint32_t to =
          stage_.stage * Tile::kCopiedPartBytes + panel * kPanelRow * Tile::kStageTokens + granule * 16 * kPanelRow;
      const std::uint32_t key_full = ring.key_full + 8 * stage_.stage;
      const std::uint32_t value_full = ring.value_full + 8 * stage_.stage;
      barrier_wait(ring.key_empty + 8 * stage_.stage, stage_.parity ^ 1);
      if (lane_ == 0) arrive_expecting(key_full, n_granules * 16 * Tile::kCopiedRowBytes);
      __syncwarp();
      if (block >= 0) copy_bulk(ring.keys + to, from, 16 * kPanelRow, key_full);
      barrier_wait(ring.value_empty + 8 * stage_.stage, stage_.parity ^ 1);
      // Values outside the hull may be anything, also NaN. They count as zero.
      if (has_part && (first > 0 || end < 16)) {
        for (int token = 0; token < 16; ++token)
          if (token < first || token >= end) clear_row(ring.values + to + token * kPanelRow);
        wgmma_see_copies();
      }
      __syncwarp();
      if (lane_ == 0) arrive_expecting(value_full, n_tokens * Tile::kCopiedRowBytes);
      __syncwarp();
      if (block >= 0)
        copy_bulk(ring.values + to + first * kPanelRow, from + values + first * kPanelRow, (end - first) * kPanelRow,
                  value_full);
      stage_.advance(Tile::kCopiedStages);
      block = next_block;
    }
  }
  __device__ __forceinline__ static int clamp(int token) { return min(max(token, 0), 16); }
  __device__ __forceinline__ static void clear_row(std::uint32_t row) {
#pragma unroll
    for (int i = 0; i < Tile::kCopiedPanelRow; i += 16) store_shared(row + i, {});
  }

  /// Writes a task as soon as the consumers have left the one before the last, and copies its rows and queries. Queries
  /// lie as wgmma's operand A: each warpgroup's 64 rows panel by panel, with 128-byte swizzle.
  __device__ __forceinline__ void copy_task(const ItemPair& pair, int row, int n_token_rows) {
    const int thread = thread_ - 32;
    const int first_row = pair.item.first_row + row;
    barrier_wait(memory_.task_empty + 8 * stage_.stage, stage_.parity ^ 1);
    if (thread == 0) {
      TileTask task;
      task.first_row = first_row;
      task.n_token_rows = n_token_rows;
      task.first_partial = pair.item.first_partial + row;
      task.is_direct = pair.item.flags & AttentionItem::direct;
      task.kv_begin = pair.item.kv_begin;
      task.kv_end = pair.item.kv_end;
      task.kv_head = pair.kv_head;
      memory_.tasks[stage_.stage] = task;
    }
    for (int i = thread; i < n_token_rows; i += Tile::kQueryThreads)
      copy_16(shared_address(memory_.rows + stage_.stage * Tile::kRows + i), p_.rows + first_row + i);
    constexpr int kChunks = Tile::kRowBytes / 16;
    const std::uint32_t to = memory_.queries + stage_.stage * Tile::kQueryBytes;
    const std::byte* from =
        p_.q + (static_cast<std::int64_t>(first_row) * p_.n_heads + pair.kv_head * group_) * Tile::kRowBytes;
    const std::int64_t others = p_.n_heads - group_;  // heads between a token's and the next token's
#pragma unroll 4
    for (int i = thread; i < n_token_rows * group_ * kChunks; i += Tile::kQueryThreads) {
      const int tile_row = i / kChunks;
      const int chunk = i % kChunks;
      const int token = tile_row / group_;
      copy_16(query_address<Tile>(to, tile_row, chunk), from + (token * others + tile_row) * Tile::kRowBytes + chunk * 16);
    }
    arrive_with_copies(memory_.task_full + 8 * stage_.stage);
    if constexpr (Tile::kIsFp8) widener_.widen_queries(to, n_token_rows * group_, memory_.factors + stage_.stage * Tile::kRows);
    barrier_arrive(memory_.task_full + 8 * stage_.stage);  // and with the task itself
    stage_.advance(Tile::kTasks);
  }

  const AttentionParams& p_;
  const WideMemory<Tile>& memory_;
  int thread_;
  int lane_;
  int group_;
  RingPosition stage_;  ///< of the key warp: the ring of stages; of the query warps: of tasks
  [[no_unique_address]] std::conditional_t<Tile::kIsFp8, WideWidener<Tile>, NoWideWidener<Tile>> widener_;
};

}  // namespace baton::cuda

#endif  // BATON_SM90A
