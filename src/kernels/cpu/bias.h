/// Biases of linear layers on the CPU.
#pragma once

#include "core/parallel.h"
#include "core/tensor.h"

namespace baton::cpu {

/// out[r] += bias, in f32, rounded once. out [rows, n] float, bias [n] float.
void add_bias(const Parallel& parallel, const TensorView& out, const ConstTensorView& bias);

}  // namespace baton::cpu
