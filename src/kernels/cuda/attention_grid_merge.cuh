/// Merging inside the attention kernel, by its blocks when all of them have written their states.
#pragma once

#include "kernels/cuda/attention_merge.cuh"

namespace baton::cuda {

/// A barrier of all blocks of a launch, which must all be resident at once. One counter serves launch after launch: it runs
/// through two rounds of the grid's blocks, so that no one has to reset it before the last has seen it. All launches over a
/// counter have the same grid. One thread a block.
class GridBarrier {
 public:
  __device__ explicit GridBarrier(unsigned* counter) : counter_(counter) {}

  /// Behind a barrier of the block: what its threads have written is seen by whoever waits. Gives the counter's value before,
  /// which wait() wants.
  __device__ unsigned arrive() const {
    __threadfence();
    return atomicInc(counter_, 2 * gridDim.x - 1);
  }
  /// Which of the blocks it was that arrived, from 0.
  __device__ static int sequence_of_sample(unsigned arrival) {
    return static_cast<int>(arrival < gridDim.x ? arrival : arrival - gridDim.x);
  }
  __device__ void wait(unsigned arrival) const {
    const bool first_round = arrival < gridDim.x;
    while ((load() < gridDim.x) == first_round) __nanosleep(20);
  }

 private:
  __device__ unsigned load() const {
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter_) : "memory");
    return value;
  }

  unsigned* counter_;
};

/// Merges the calling block's share of the rows, by its kMergeThreads threads with named barrier kBarrier, behind their last
/// store. Blocks that end first take no share and leave their place to the next launch's. `shared`: kMergeWords.
template <class T, int kBarrier>
__device__ __forceinline__ void merge_behind_all_blocks(const AttentionParams& p, std::uint32_t* shared, int thread) {
  const StepArrays step(p);
  const auto n_blocks = static_cast<int>(gridDim.x);
  const int n_mergers = min(n_blocks, max((n_blocks + 1) / 2, p.n_rows * p.n_heads / (2 * kMergeWarps)));
  const GridBarrier barrier(p.arrivals);
  unsigned arrival = 0;
  const auto join = [&] {
    named_barrier(kBarrier, kMergeThreads);
    if (thread == 0) *shared = barrier.arrive();
    named_barrier(kBarrier, kMergeThreads);
    arrival = *shared;
    return GridBarrier::sequence_of_sample(arrival) - (n_blocks - n_mergers);
  };
  const auto wait = [&] {
    if (thread == 0) barrier.wait(arrival);
    named_barrier(kBarrier, kMergeThreads);
  };
  Merger<T, kBarrier>(p, step, n_mergers, shared, thread).run(join, wait);
}

}  // namespace baton::cuda
