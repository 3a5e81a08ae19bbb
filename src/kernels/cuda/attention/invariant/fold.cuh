/// Folding of attention states in batch-invariant mode. The kernel that computes chunks and the one that merges partial
/// states fold by the same rounded operations, so a row's bits do not depend on which of the two folded which chunk.
#pragma once

#include "kernels/cuda/device/mma.cuh"

namespace baton::cuda {

/// merge(a, b) of a row's states (attention_merge in kernels/ops.h), given their maxima. An empty state (m = -infinity)
/// changes no bit of the other.
class StateFold {
 public:
  __device__ __forceinline__ StateFold(float a_max, float b_max)
      : max_(fmaxf(a_max, b_max)),
        a_weight_(exp2_approx(a_max - max_)),
        b_weight_(exp2_approx(b_max - max_)),
        a_is_empty_(a_max == -INFINITY),
        b_is_empty_(b_max == -INFINITY) {}

  __device__ __forceinline__ float max() const { return max_; }
  /// The sum of a number of a and the same of b.
  __device__ __forceinline__ float operator()(float a, float b) const {
    const float sum = __fmaf_rn(b, b_weight_, __fmul_rn(a, a_weight_));
    return b_is_empty_ ? a : a_is_empty_ ? b : sum;
  }

 private:
  float max_, a_weight_, b_weight_;
  bool a_is_empty_, b_is_empty_;
};

/// Multiplies a chunk's outputs by the scale of e4m3 values, before the chunk is folded: partial states have it, so where a
/// row's chunks are folded changes no bit.
template <class Tile, int kColumnTiles>
__device__ __forceinline__ void scale_values(float (&out)[kColumnTiles][4], float scale) {
  if constexpr (Tile::kIsFp8) {
#pragma unroll
    for (int i = 0; i < kColumnTiles; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) out[i][j] = __fmul_rn(out[i][j], scale);
  }
}

/// What a row's sums are multiplied by at the end, given the sum of its weights.
__device__ __forceinline__ float output_factor(float sum) { return sum != 0 ? __frcp_rn(sum) : 0.0f; }
__device__ __forceinline__ float4 finished_output(float4 o, float factor) {
  return {__fmul_rn(o.x, factor), __fmul_rn(o.y, factor), __fmul_rn(o.z, factor), __fmul_rn(o.w, factor)};
}

}  // namespace baton::cuda
