/// The matmuls of a whole stage of 64 keys and values by wgmma, for a warpgroup with 64 query rows.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/mma.cuh"

namespace baton::cuda {

/// Weights of 16 tokens as operand A, from the scores of the first eight and of the last eight.
template <class T>
__device__ __forceinline__ void pack_weights(std::uint32_t (&a)[4], const float (&low)[4], const float (&high)[4]) {
  a[0] = pack_pair<T>(low[0], low[1]);
  a[1] = pack_pair<T>(low[2], low[3]);
  a[2] = pack_pair<T>(high[0], high[1]);
  a[3] = pack_pair<T>(high[2], high[3]);
}

#ifdef BATON_SM90A

/// Scores of the stage whose keys are at `keys`; queries are operands A of each k step.
template <class T, int kKSteps>
__device__ __forceinline__ void score_stage(float (&scores)[8][4], const std::uint32_t (&queries)[kKSteps][4],
                                            std::uint32_t keys) {
  wgmma_see_copies();
  own_accumulators(scores);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kKSteps; ++k)
    wgmma_64x64x16<T>(scores, queries[k], wgmma_descriptor(keys + k / 4 * 128 * 64 + k % 4 * 32, 16, 1024), k > 0);
  wgmma_commit();
  wgmma_wait<0>();
  own_accumulators(scores);
}

/// Adds the stage's values, which are at `values`, each times its weight.
template <class T, int kColumnTiles>
__device__ __forceinline__ void add_values(float (&out)[kColumnTiles][4], const float (&scores)[8][4], std::uint32_t values) {
  std::uint32_t weights[4][4];
#pragma unroll
  for (int k = 0; k < 4; ++k) pack_weights<T>(weights[k], scores[2 * k], scores[2 * k + 1]);
  own_accumulators(out);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma_transposed<T>(out, weights[k], wgmma_descriptor(values + k * 16 * 128, 128 * 64, 1024));
  wgmma_commit();
  wgmma_wait<0>();
  own_accumulators(out);
}

#endif  // BATON_SM90A

}  // namespace baton::cuda
