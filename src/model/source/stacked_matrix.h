/// Matrices of a source that are stacked and multiplied as one, in the scheme that they are stored in.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/result.h"
#include "model/source/source.h"

namespace baton {

/// Reorders the rows [n] or [n, k] of heads of `dim` rows: rows 2i first, then rows 2i + 1.
void part_pairs(const TensorView& rows, std::int32_t dim);

/// What a StoredMatrix of several parts needs. A block of scales that two parts, or a part and its rank's cut, share
/// is cut:
/// both pieces get its scale.
struct StackedForm {
  MatrixForm form;                 ///< of the whole stack: no two parts share a scale
  Shape shape;                     ///< [n, k]
  std::size_t size_bytes() const;  ///< memory of values, scales, zeros and permutation; not of dense matrices
};

/// Errors (unsupported) name tensors: parts in two schemes, in another order of columns, or cut inside a small group.
/// Those of
/// WeightSource::form_of.
Result<StackedForm> stacked_form(std::span<const TensorPart> parts, const WeightSource& source);

/// Reads parts that are not dense into `memory` of form.size_bytes(), 64-byte aligned, which the result refers to.
/// Errors: those
/// of WeightSource::read_stored.
Result<StoredMatrix> read_stacked(std::span<const TensorPart> parts, const StackedForm& form, WeightSource& source,
                                  std::byte* memory);

}  // namespace baton
