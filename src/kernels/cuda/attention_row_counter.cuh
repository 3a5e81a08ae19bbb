/// Merging inside the attention kernel: who writes a row's last partial state merges the row, when it has no more tiles.
#pragma once

#include "kernels/cuda/attention_tile.cuh"

namespace baton::cuda {

/// One for each consumer thread; what is noted lies in shared memory.
template <class Tile>
class RowCounter {
 public:
  __device__ RowCounter(const AttentionParams& p, const SharedLayout<Tile>& shared) : p_(p), shared_(shared) {}

  /// Keeps the merge slots of the tile's rows, whose place the next task may take.
  __device__ __forceinline__ void take_slots(int n_token_rows) {
    if (warp() != 0) return;
#pragma unroll 1
    for (int i = lane(); i < n_token_rows; i += 32)
      shared_.merge_slots[i] = {shared_.merge_offsets[i], shared_.merge_offsets[i + 1]};
  }

  __device__ bool has_room(int n_token_rows) const { return n_counted_ + n_token_rows <= kLateMerges; }

  /// Counts the tile's states in, a row a lane, and notes the rows whose last state it was. Behind the barrier that follows the
  /// block's last store.
  __device__ __forceinline__ void count(const TileTask& task) {
    n_counted_ += task.n_token_rows;
    if (warp() != 0) return;
    __threadfence();
#pragma unroll 1
    for (int i = lane(); i < task.n_token_rows; i += 32) {
      const int row = task.first_row + i;
      const int2 slots = shared_.merge_slots[i];
      const unsigned last = static_cast<unsigned>(slots.y - slots.x) - 1;
      // Wraps to zero with the last arrival, so the counter is ready for the next launch.
      auto* counter = reinterpret_cast<unsigned*>(p_.counters) + static_cast<std::int64_t>(row) * p_.n_kv_heads + task.kv_head;
      if (atomicInc(counter, last) == last)
        shared_.late_merges[atomicAdd(shared_.n_late_merges, 1)] = {row, task.kv_head, slots.x, slots.y};
    }
  }

  /// Merges what was noted: rows of few slots by a warp for each head, of many by all warps. All consumers call it.
  __device__ __forceinline__ void merge_completed_rows() {
    if (n_counted_ == 0) return;
    if (warp() == 0) __threadfence();
    named_barrier(kConsumerBarrier, kConsumerThreads);
    const StepArrays step(p_);
    const int group = p_.n_heads / p_.n_kv_heads;
    const int n = *shared_.n_late_merges;
#pragma unroll 1
    for (int i = warp(); i < n * group; i += kConsumerWarps) {
      const int4 late = shared_.late_merges[i / group];
      if (!wants_block(late.w - late.z))
        merge_by_warp<typename Tile::Element>(p_, step.merge_slots + late.z, late.w - late.z, late.x,
                                              late.y * group + i % group, lane());
    }
#pragma unroll 1
    for (int i = 0; i < n * group; ++i) {
      const int4 late = shared_.late_merges[i / group];
      if (wants_block(late.w - late.z))
        merge_by_block<typename Tile::Element, kConsumerWarps>(p_, step.merge_slots + late.z, late.w - late.z, late.x,
                                                               late.y * group + i % group, shared_.scratch, thread(),
                                                               kConsumerBarrier);
    }
    named_barrier(kConsumerBarrier, kConsumerThreads);
    if (thread() == 0) *shared_.n_late_merges = 0;
    n_counted_ = 0;
  }

 private:
  // Read anew at each use: registers are short beside the products.
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int lane() { return thread() & 31; }
  __device__ static int warp() { return thread() >> 5; }

  const AttentionParams& p_;
  const SharedLayout<Tile>& shared_;
  int n_counted_ = 0;  ///< rows since the last merging
};

}  // namespace baton::cuda
