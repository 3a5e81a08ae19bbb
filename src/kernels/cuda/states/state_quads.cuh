/// Four columns of a recurrent state, which a thread has: an access of 16 bytes, or of 8 where the state is bf16.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/states/state_storage.h"

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

/// Four columns of a state, at a multiple of their bytes: memory is read and written once.
__device__ __forceinline__ void load_state_quad(const float* from, bool reads, float (&state)[kStateQuad]) {
  const float4 quad = reads ? __ldcs(reinterpret_cast<const float4*>(from)) : make_float4(0, 0, 0, 0);
  state[0] = quad.x, state[1] = quad.y, state[2] = quad.z, state[3] = quad.w;
}
__device__ __forceinline__ void load_state_quad(const __nv_bfloat16* from, bool reads, float (&state)[kStateQuad]) {
  const uint2 quad = reads ? __ldcs(reinterpret_cast<const uint2*>(from)) : make_uint2(0, 0);
  const float2 low = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&quad.x));
  const float2 high = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&quad.y));
  state[0] = low.x, state[1] = low.y, state[2] = high.x, state[3] = high.y;
}
__device__ __forceinline__ void store_state_quad(const float (&state)[kStateQuad], float* to) {
  __stcs(reinterpret_cast<float4*>(to), make_float4(state[0], state[1], state[2], state[3]));
}
/// To nearest even.
__device__ __forceinline__ void store_state_quad(const float (&state)[kStateQuad], __nv_bfloat16* to) {
  const __nv_bfloat162 low = __floats2bfloat162_rn(state[0], state[1]);
  const __nv_bfloat162 high = __floats2bfloat162_rn(state[2], state[3]);
  __stcs(reinterpret_cast<uint2*>(to),
         make_uint2(*reinterpret_cast<const unsigned*>(&low), *reinterpret_cast<const unsigned*>(&high)));
}

/// What a state of numbers T is after a row: the same, or rounded to nearest even.
template <class T>
__device__ __forceinline__ void round_state_quad(float (&state)[kStateQuad]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
#pragma unroll
    for (int c = 0; c < kStateQuad; ++c) state[c] = to_f32(from_f32<__nv_bfloat16>(state[c]));
  }
}

/// The matrices of a slot, which are numbers T.
template <class T>
__device__ __forceinline__ T* matrices_of(const MatricesOfLayer& matrices, std::int32_t slot) {
  return static_cast<T*>(matrices.first) + slot * matrices.slot_stride;
}

}  // namespace baton::cuda
