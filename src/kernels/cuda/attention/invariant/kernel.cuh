/// The attention kernel of batch-invariant mode: the blocks, items and copies of attention/general/kernel.cuh, with sums in one
/// fixed way (attention/invariant/consumer.cuh).
#pragma once

#include "kernels/cuda/attention/general/kernel.cuh"
#include "kernels/cuda/attention/invariant/consumer.cuh"
#include "kernels/cuda/attention/invariant/invariant.h"

namespace baton::cuda {

template <class T, int kDim, bool kFp8>
__global__ void __launch_bounds__(kAttentionThreads, std::min(kCompiledResidents, InvariantTile<T, kDim, kFp8>::kMostResidents))
    invariant_attention_kernel(const __grid_constant__ AttentionParams p, const __grid_constant__ MemoryPlan plan) {
  using Tile = InvariantTile<T, kDim, kFp8>;
  run_attention<Tile, InvariantConsumer<Tile>>(p, plan);
}

template <class T, int kDim, bool kFp8>
MemoryPlan plan_invariant_attention_memory(const Device& device) {
  using Tile = InvariantTile<T, kDim, kFp8>;
  return plan_memory<Tile>(device, std::min(Tile::kMostResidents, attention_blocks_a_multiprocessor(device)));
}

template <class T, int kDim, bool kFp8>
void launch_invariant_attention(const AttentionParams& params, const Device& device, int n_blocks) {
  using Tile = InvariantTile<T, kDim, kFp8>;
  const bool halves = Tile::kMostResidents < attention_blocks_a_multiprocessor(device);
  launch_tiles<Tile>(invariant_attention_kernel<T, kDim, kFp8>, params, device, halves ? std::max(1, n_blocks / 2) : n_blocks,
                     plan_invariant_attention_memory<T, kDim, kFp8>(device));
}

}  // namespace baton::cuda
