/// Matrices of heads, read as dense ones whatever they are stored as.
#pragma once

#include <cstdint>
#include <span>

#include "core/result.h"
#include "core/tensor.h"
#include "kernels/stored_matrix.h"
#include "model/source/source.h"

namespace baton {

/// The elements of a row of a matrix that is not dense, in the order of the x that it multiplies (StoredMatrix::permutation).
void widen_row(const StoredMatrix& matrix, std::int64_t row, std::span<float> weights);

/// Writes parts [n, k], of equal shapes, to `out`: [parts, n, k] or, with `is_transposed`, [parts, k, n], of a float dtype. Needs
/// memory for one part in f32. Errors: those of stacked_form and of the source.
Result<void> read_heads(std::span<const TensorPart> heads, bool is_transposed, WeightSource& source, const TensorView& out);

}  // namespace baton
