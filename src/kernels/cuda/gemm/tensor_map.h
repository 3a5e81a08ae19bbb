/// Descriptions of matrices to the tensor memory accelerator.
#pragma once

#include <cuda.h>

#include "core/tensor.h"

namespace baton::cuda {

/// Numbers in a row of a box: 128 bytes of 16-bit floats, which the swizzle permutes.
inline constexpr int kBoxK = 64;

/// The driver's cuTensorMapEncodeTiled; null in drivers without it.
void* tensor_map_encoder();

/// Describes a row-major matrix of 16-bit floats to copies of boxes of `n_rows` rows and kBoxK columns. The matrix must be
/// aligned to 16 bytes, and so must its rows.
CUtensorMap matrix_map(void* encode, const ConstTensorView& matrix, int n_rows);

}  // namespace baton::cuda
