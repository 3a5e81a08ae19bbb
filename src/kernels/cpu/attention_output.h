/// Converts a partial attention state to an output.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "kernels/cpu/attention_state.h"

namespace baton::cpu {

/// Writes row `index` (in units of head_dim) of `out`, any float dtype: o / l, or 0 for an empty state.
inline void write_output(const TensorView& out, std::int64_t index, const float* o, float m, float l, int head_dim) {
  visit_float(out.dtype, [&]<class T>(T) {
    T* to = reinterpret_cast<T*>(out.data) + index * head_dim;
    if (m == kMinusInfinity) {
      for (int i = 0; i < head_dim; ++i) to[i] = T(0.0f);
    } else {
      for (int i = 0; i < head_dim; ++i) to[i] = T(o[i] / l);
    }
  });
}

}  // namespace baton::cpu
