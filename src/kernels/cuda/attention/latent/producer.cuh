/// The producer warps of the latent attention kernel: one copies keys in bulk, three copy queries. Keys of earlier steps are
/// copied before the kernel before has ended.
#pragma once

#include "kernels/cuda/attention/latent/tile.cuh"
#include "kernels/cuda/attention/step.cuh"
#include "kernels/cuda/attention/wide/producer.cuh"
#include "kernels/cuda/device/launch.cuh"

#ifdef BATON_SM90A

namespace baton::cuda {

template <class Tile>
class LatentProducer {
 public:
  __device__ LatentProducer(const AttentionParams& p, const LatentMemory<Tile>& memory)
      : p_(p), memory_(memory), thread_(static_cast<int>(threadIdx.x) - Tile::kConsumerThreads), lane_(thread_ % 32) {}

  /// The key warp and the query warps go through the same tiles, each at its own pace.
  __device__ void run() {
    const StepArrays step(p_);
    PairReader reader(step, 1, false);
    read_batch(reader, 0);
#pragma unroll 1
    for (int i = 0; memory_.pairs[i].item.n_rows > 0;) {
      const AttentionItem item = memory_.pairs[i].item;  // a copy: the next batch may overwrite it
      i = (i + 1) % (2 * kPairBatch);
      if (i % kPairBatch == 0) read_batch(reader, i);
      const int n_pairs = item.n_rows * p_.n_heads;
#pragma unroll 1
      for (int first = 0; first < n_pairs; first += Tile::kRows) {
        const int n = min(Tile::kRows, n_pairs - first);
        if (thread_ < 32)
          copy_keys(step, item, first, n);
        else
          copy_task(item, first, n);
      }
    }
    if (thread_ >= 32) copy_task(AttentionItem{}, 0, 0);
    wait_for_copies();
  }

 private:
  static constexpr int kLanes = 8;  ///< that copy 16 tokens, a panel each
  static_assert(Tile::kPartPanels <= kLanes);

  __device__ void read_batch(PairReader& reader, int first) {
    if (thread_ < 32) reader.read(memory_.pairs + first, thread_);
    named_barrier(kProducerBarrier, kProducerThreads);
  }

  /// Waits once for the kernel before. From then on this step's queries and keys may be read.
  __device__ __forceinline__ void wait_once() {
    if (!has_waited_) wait_for_kernel_before();
    has_waited_ = true;
  }

  /// Copies a tile's stages, the first one first. Tokens outside the hull may be anything, also NaN: they count as zero.
  __device__ __forceinline__ void copy_keys(const StepArrays& step, const AttentionItem& item, int first, int n) {
    const TokenRows rows(first, n, p_.n_heads);
    const TileBounds<Tile> bounds(p_.rows + item.first_row + rows.first, rows.n, item.kv_begin, item.kv_end, lane_);
    const int granule = lane_ / kLanes;
    const int* const list = step.block_lists + item.block_list - (item.kv_begin >> p_.block_shift);
    const auto block_at = [&](int position) {
      return position + 16 > bounds.hull_lo && position < bounds.hull_hi ? __ldg(list + (position >> p_.block_shift)) : -1;
    };
    const int last = bounds.last();
    const int settled_end = item.kv_begin / 16 * 16 + 16 * item.n_settled_granules();
    int position = bounds.begin();  // of the stage
    int block = block_at(position + granule * 16);
#pragma unroll 1
    for (; position <= last; position += Tile::kStageTokens) {
      const int mine = position + granule * 16;
      const int next_block = block_at(mine + Tile::kStageTokens);
      const int begin = min(max(bounds.hull_lo - mine, 0), 16), end = min(max(bounds.hull_hi - mine, 0), 16);
      const int n_tokens = min(position + Tile::kStageTokens, bounds.hull_hi) - max(position, bounds.hull_lo);
      const std::byte* const from =
          p_.kv + block * p_.block_bytes + ((mine & ((1 << p_.block_shift) - 1)) + begin) * std::int64_t{128};
      const std::uint32_t to = memory_.stages + stage_.stage * Tile::kStageBytes + granule * 16 * 128;
      const std::uint32_t full = memory_.full + 8 * Tile::kParts * stage_.stage;
      if (min(position + Tile::kStageTokens, bounds.hull_hi) > settled_end) wait_once();
      barrier_wait(memory_.empty + 8 * stage_.stage, stage_.parity ^ 1);
      if (begin > 0 || end < 16) {
        for (int token = 0; token < 16; ++token)
          if (token < begin || token >= end) clear_token(to + token * 128);
        wgmma_see_copies();
      }
      __syncwarp();
#pragma unroll
      for (int part = 0; part < Tile::kParts; ++part) {
        if (lane_ == 0) arrive_expecting(full + 8 * part, n_tokens * 128 * Tile::kPartPanels);
        __syncwarp();
        const int panel = part * Tile::kPartPanels + lane_ % kLanes;
        if (block >= 0 && lane_ % kLanes < Tile::kPartPanels)
          copy_bulk(to + panel * Tile::kPanelBytes + begin * 128,
                    from + (static_cast<std::int64_t>(panel * 128) << p_.block_shift), (end - begin) * 128, full + 8 * part);
      }
      stage_.advance(Tile::kStages);
      block = next_block;
    }
  }
  __device__ __forceinline__ void clear_token(std::uint32_t at) const {
    for (int panel = lane_ % kLanes; panel < Tile::kPanels; panel += kLanes)
#pragma unroll
      for (int i = 0; i < 128; i += 16) store_shared(at + panel * Tile::kPanelBytes + i, {});
  }

  /// Writes a task as soon as the consumers need the queries of the one before no more, and copies its queries, which lie one
  /// after the other.
  __device__ __forceinline__ void copy_task(const AttentionItem& item, int first, int n) {
    const int thread = thread_ - 32;
    wait_once();
    barrier_wait(memory_.task_empty, stage_.parity ^ 1);
    if (thread == 0)
      *memory_.task = {item.first_row, first,       n, item.first_partial, item.flags & AttentionItem::direct,
                       item.kv_begin,  item.kv_end, 0};
    constexpr int kChunks = Tile::kRowBytes / 16;
    const std::byte* const from = p_.q + (static_cast<std::int64_t>(item.first_row) * p_.n_heads + first) * Tile::kRowBytes;
#pragma unroll 4
    for (int i = thread; i < n * kChunks; i += Tile::kQueryThreads) {
      const int row = i / kChunks;
      const int chunk = i % kChunks;
      copy_16(memory_.queries + chunk / 8 * Tile::kPanelBytes + row * 128 + ((chunk & 7) ^ (row & 7)) * 16, from + i * 16);
    }
    arrive_with_copies(memory_.task_full);
    barrier_arrive(memory_.task_full);  // and with the task itself
    stage_.advance(1);
  }

  const AttentionParams& p_;
  const LatentMemory<Tile>& memory_;
  int thread_;
  int lane_;
  bool has_waited_ = false;
  RingPosition stage_;  ///< of the key warp: the ring of stages; of the query warps: of the one task
};

}  // namespace baton::cuda

#endif  // BATON_SM90A
