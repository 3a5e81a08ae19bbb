/// The attention kernel of batch-invariant mode: the blocks, items and copies of attention/general/kernel.cuh, with sums in one
/// fixed way (attention/invariant/consumer.cuh).
#pragma once

#include "kernels/cuda/attention/general/kernel.cuh"
#include "kernels/cuda/attention/invariant/consumer.cuh"
#include "kernels/cuda/attention/invariant/invariant.h"

namespace baton::cuda {

template <class T, int kDim>
__global__ void __launch_bounds__(kAttentionThreads, InvariantTile<T, kDim>::kMostResidents)
    invariant_attention_kernel(const __grid_constant__ AttentionParams p, int n_stages) {
  using Tile = InvariantTile<T, kDim>;
  run_attention<Tile, InvariantConsumer<Tile>>(p, n_stages);
}

template <class T, int kDim>
int invariant_attention_stages(const Device& device) {
  using Tile = InvariantTile<T, kDim>;
  return stages_that_fit<Tile>(device, std::min(Tile::kMostResidents, attention_blocks_a_multiprocessor(device)));
}

template <class T, int kDim>
void launch_invariant_attention(const AttentionParams& params, const Device& device, int n_blocks) {
  using Tile = InvariantTile<T, kDim>;
  const bool halves = Tile::kMostResidents < attention_blocks_a_multiprocessor(device);
  launch_tiles<Tile>(invariant_attention_kernel<T, kDim>, params, device, halves ? std::max(1, n_blocks / 2) : n_blocks,
                     invariant_attention_stages<T, kDim>(device));
}

}  // namespace baton::cuda
