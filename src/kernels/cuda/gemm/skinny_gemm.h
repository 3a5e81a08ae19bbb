/// Skinny GEMM on a CUDA device: matmuls of few rows, which stream a 16-bit weight once at memory bandwidth.
#pragma once

#include "core/tensor.h"
#include "kernels/cuda/device/device.h"

namespace baton::cuda {

/// Whether multiply_skinny supports this matmul: x [rows, k] and weight [n, k] bf16 or f16, out [rows, n] of the same
/// dtype or f32. With more rows cuBLASLt is as fast.
bool can_multiply_skinny(const Device& device, const ConstTensorView& x, const ConstTensorView& weight, const TensorView& out);

/// out = x W^T + bias with f32 sums, whose order depends on k alone. `bias` [n] of out's dtype, or null data.
/// Weights may be read while the operation before still runs.
void multiply_skinny(const Device& device, const ConstTensorView& x, const ConstTensorView& weight, const ConstTensorView& bias,
                     const TensorView& out);

}  // namespace baton::cuda
