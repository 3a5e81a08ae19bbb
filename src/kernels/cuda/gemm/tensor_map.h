/// Descriptions of matrices to the tensor memory accelerator.
#pragma once

#include <cuda.h>

#include "core/tensor.h"

namespace baton::cuda {

/// A row of a box: 128 bytes, which the swizzle permutes; so many 16-bit floats.
inline constexpr int kBoxBytes = 128;
inline constexpr int kBoxK = 64;

/// The driver's cuTensorMapEncodeTiled; null in drivers without it.
void* tensor_map_encoder();

/// Describes a row-major matrix of bf16, f16 or f8_e4m3 to copies of boxes of `n_rows` rows and kBoxBytes of columns. The matrix
/// must be aligned to 16 bytes, and so must its rows.
CUtensorMap matrix_map(void* encode, const ConstTensorView& matrix, int n_rows);

}  // namespace baton::cuda
