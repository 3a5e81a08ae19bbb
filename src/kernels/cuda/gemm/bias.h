/// Biases of linear layers on a CUDA device.
#pragma once

#include "core/tensor.h"
#include "kernels/cuda/device/device.h"

namespace baton::cuda {

/// out[r] += bias, in f32, rounded once. out [rows, n] float, bias [n] float. For matmuls that cannot add the bias
/// themselves.
void add_bias(const Device& device, const TensorView& out, const ConstTensorView& bias);

}  // namespace baton::cuda
