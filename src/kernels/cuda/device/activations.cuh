/// The formulas of activations, in f32 (kernels/ops.h), for outputs of type Out. Kernels that share them write the same bits.
#pragma once

#include <type_traits>

#include <cuda_runtime.h>

namespace baton::cuda {

__device__ __forceinline__ float gelu_exact(float x) { return 0.5f * x * erfcf(-0.70710678f * x); }

/// x / (1 + exp(-a)), of which 16 bits do not show how the device's fast exponential and reciprocal round.
template <class Out>
__device__ __forceinline__ float times_sigmoid(float x, float a) {
  if constexpr (std::is_same_v<Out, float>) {
    return x / (1.0f + expf(-a));
  } else {
    constexpr float kLog2OfE = 1.4426950f;
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(-kLog2OfE * a));
    float part;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(part) : "f"(1.0f + power));
    return x * part;
  }
}

/// (1 + tanh(y)) / 2 = 1 / (1 + exp(-2 y)).
template <class Out>
__device__ __forceinline__ float gelu_tanh(float x) {
  constexpr float kTwiceRootOfTwoOverPi = 1.5957691f;
  return times_sigmoid<Out>(x, kTwiceRootOfTwoOverPi * (x + 0.044715f * x * x * x));
}

template <class Out>
__device__ __forceinline__ float silu(float x) {
  return times_sigmoid<Out>(x, x);
}

}  // namespace baton::cuda
