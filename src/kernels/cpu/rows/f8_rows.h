/// Rows in f8_e4m3 with a scale each, as kernels/ops.h says: made, and made numbers of another dtype again, exactly.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace baton::cpu {

/// Rounds a row of `n` numbers to row `r` of `out`, and writes its scale.
void store_f8_row(const float* row, std::int64_t n, const TensorView& out, const TensorView& scales, std::int64_t r);

/// out = x without its scales: f32 or bf16 of the same shape.
void widen_f8(const ConstTensorView& x, const TensorView& out);

}  // namespace baton::cpu
