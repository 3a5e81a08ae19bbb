/// Elements of float tensors on the device: their types, conversion to and from f32, and access to several at once.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/tensor.h"

namespace baton::cuda {

/// Calls `body(T{})` with the device type of a float dtype (float, __nv_bfloat16, __half). Aborts for any other dtype.
template <class Body>
void visit_element(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32: return body(float{});
    case DType::bf16: return body(__nv_bfloat16{});
    case DType::f16: return body(__half{});
    default: check_failed("visit_element: the dtype is not f32, bf16 or f16");
  }
}

/// Calls `body(T{}, Out{})` for a matmul whose operands have the 16-bit dtype T and whose out has it too or is f32. Aborts
/// for other operands.
template <class Body>
void visit_operands(DType operands, DType out, Body&& body) {
  const auto visit_out = [&](auto zero) { return out == DType::f32 ? body(zero, float{}) : body(zero, zero); };
  switch (operands) {
    case DType::bf16: return visit_out(__nv_bfloat16{});
    case DType::f16: return visit_out(__half{});
    default: check_failed("visit_operands: the dtype is not bf16 or f16");
  }
}

__device__ inline float to_f32(float value) { return value; }
__device__ inline float to_f32(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float to_f32(__half value) { return __half2float(value); }

/// Rounds to nearest even.
template <class T>
__device__ T from_f32(float value);
template <>
__device__ inline float from_f32<float>(float value) {
  return value;
}
template <>
__device__ inline __nv_bfloat16 from_f32<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ inline __half from_f32<__half>(float value) {
  return __float2half_rn(value);
}

/// N adjacent elements, read and written in one access; memory must be aligned to their total size.
template <class T, int N>
struct alignas(N * sizeof(T)) Elements {
  T values[N];
};

template <int N, class T>
__device__ void load_f32(const T* from, float (&to)[N]) {
  const auto elements = *reinterpret_cast<const Elements<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_f32(elements.values[i]);
}

template <int N, class T>
__device__ void store_f32(const float (&from)[N], T* to) {
  Elements<T, N> elements;
#pragma unroll
  for (int i = 0; i < N; ++i) elements.values[i] = from_f32<T>(from[i]);
  *reinterpret_cast<Elements<T, N>*>(to) = elements;
}

/// Elements that one thread reads or writes in one access, if rows of `n` elements allow it.
inline constexpr int kElementsAtOnce = 4;

/// Whether all rows of `n` elements of these tensors are aligned for access to kElementsAtOnce elements.
template <class... Tensors>
bool rows_are_aligned(std::int64_t n, const Tensors&... tensors) {
  const auto is_aligned = [](const auto& tensor) {
    return reinterpret_cast<std::uintptr_t>(tensor.data) % (kElementsAtOnce * size_bytes(tensor.dtype)) == 0;
  };
  return n % kElementsAtOnce == 0 && (is_aligned(tensors) && ...);
}

}  // namespace baton::cuda
