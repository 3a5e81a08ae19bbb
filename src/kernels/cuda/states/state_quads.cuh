/// Four columns of a recurrent state, which a thread has: an access of 16 bytes.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/cuda/device/elements.cuh"

namespace baton::cuda {

inline constexpr int kStateQuad = 4;

/// Outputs of any float type.
__device__ __forceinline__ void store_quad(void* to, DType dtype, std::int64_t index, const float (&x)[kStateQuad]) {
  switch (dtype) {
    case DType::bf16: return store_f32(x, static_cast<__nv_bfloat16*>(to) + index);
    case DType::f16: return store_f32(x, static_cast<__half*>(to) + index);
    default: return store_f32(x, static_cast<float*>(to) + index);
  }
}

/// The sums of all warps, in order.
template <int kWarps, int kColumns>
__device__ __forceinline__ void join_warps(const float (&sums)[kWarps][kColumns], int column, float (&sum)[kStateQuad]) {
  load_f32(&sums[0][column], sum);
#pragma unroll
  for (int w = 1; w < kWarps; ++w) {
    float of_warp[kStateQuad];
    load_f32(&sums[w][column], of_warp);
#pragma unroll
    for (int c = 0; c < kStateQuad; ++c) sum[c] += of_warp[c];
  }
}

/// Four columns of a state, at a multiple of 16 bytes: memory is read and written once.
__device__ __forceinline__ void load_state_quad(const float* from, bool reads, float (&state)[kStateQuad]) {
  const float4 quad = reads ? __ldcs(reinterpret_cast<const float4*>(from)) : make_float4(0, 0, 0, 0);
  state[0] = quad.x, state[1] = quad.y, state[2] = quad.z, state[3] = quad.w;
}
__device__ __forceinline__ void store_state_quad(const float (&state)[kStateQuad], float* to) {
  __stcs(reinterpret_cast<float4*>(to), make_float4(state[0], state[1], state[2], state[3]));
}

}  // namespace baton::cuda
