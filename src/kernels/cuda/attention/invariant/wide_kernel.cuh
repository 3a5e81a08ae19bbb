/// The wide attention kernel of batch-invariant mode: the blocks, items and copies of attention/wide/kernel.cuh, with the
/// sums of attention/invariant/kernel.cuh. A row has the same bits from both kernels of the mode.
#pragma once

#include "kernels/cuda/attention/invariant/wide_consumer.cuh"
#include "kernels/cuda/attention/wide/kernel.cuh"

namespace baton::cuda {

template <class T, int kDim, bool kFp8>
__global__ void __launch_bounds__(WideTile<T, kDim, true, kFp8>::kThreads, 1)
    wide_invariant_attention_kernel([[maybe_unused]] const __grid_constant__ AttentionParams p) {
#ifdef BATON_SM90A
  using Tile = WideTile<T, kDim, true, kFp8>;
  run_wide_attention<Tile, WideInvariantConsumer<Tile>>(p);
#endif
}

template <class T, int kDim, bool kFp8>
void launch_wide_invariant_attention(const AttentionParams& params, const Device& device, int n_blocks) {
  launch_wide_tiles<WideTile<T, kDim, true, kFp8>>(wide_invariant_attention_kernel<T, kDim, kFp8>, params, device, n_blocks);
}

}  // namespace baton::cuda
