/// Converts the attention state of a whole row to an output.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "kernels/cpu/attention/attention_state.h"

namespace baton::cpu {

/// Writes row `index` (in units of value_dim) of `out`, any float dtype: o / l, or 0 for an empty state. `sink`: that of the
/// row's head, or null. It is folded in as a state (m = sink, l = 1, o = 0) would be.
inline void write_output(const TensorView& out, std::int64_t index, const float* o, float m, float l, int value_dim,
                         const float* sink) {
  float factor = 1;
  if (sink != nullptr && m != kMinusInfinity) {
    constexpr float kLog2E = 1.44269504088896340736f;
    const float of_sink = *sink * kLog2E;
    const float largest = of_sink > m ? of_sink : m;
    factor = exp2_of_nonpositive(m - largest);
    l = l * factor + exp2_of_nonpositive(of_sink - largest);
  }
  visit_float(out.dtype, [&]<class T>(T) {
    T* to = reinterpret_cast<T*>(out.data) + index * value_dim;
    if (m == kMinusInfinity) {
      for (int i = 0; i < value_dim; ++i) to[i] = T(0.0f);
    } else {
      for (int i = 0; i < value_dim; ++i) to[i] = T(o[i] * factor / l);
    }
  });
}

}  // namespace baton::cpu
