/// Converts rows of float tensors to f32 and back, for kernels that compute in f32.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/tensor.h"

namespace baton::cpu {

/// Copies `n` elements from element `begin` of a float tensor to f32.
inline void load_f32(const ConstTensorView& tensor, std::int64_t begin, std::int64_t n, float* out) {
  visit_float(tensor.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* in = reinterpret_cast<const T*>(tensor.data) + begin;
    for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]);
  });
}

/// Rounds `n` f32 values to the dtype of a float tensor and stores them from element `begin` on.
inline void store_f32(const float* in, std::int64_t n, const TensorView& tensor, std::int64_t begin) {
  visit_float(tensor.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* out = reinterpret_cast<T*>(tensor.data) + begin;
    for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(in[i]);
  });
}

}  // namespace baton::cpu
