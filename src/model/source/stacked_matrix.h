/// Matrices of a source that are stacked and multiplied as one, in the scheme that they are stored in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "model/source/source.h"
#include "model/source/value_reader.h"

namespace baton {

/// Reorders the rows [n] or [n, k] of the heads of `tensor` as loading does (RopeSpec::is_interleaved): of the leading
/// interleaved_dim rows of each head, rows 2i first, then rows 2i + 1. `rows` are whole heads.
void part_pairs(const TensorView& rows, const ExpectedTensor& tensor);

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

/// The values of a stack, read by themselves: by any thread, in any order of rows.
class StackedValues {
 public:
  /// Nothing if they must be read together with the rest: where they are permuted, where heads change places or rows of zeros
  /// are added, and where the source is no ValueSource.
  static Result<std::optional<StackedValues>> of(std::span<const TensorPart> parts, const StackedForm& form,
                                                 const WeightSource& source);

  /// Memory for the rest of form.size_bytes().
  std::size_t rest_bytes() const { return rest_bytes_; }
  /// The same as read_stacked, into memory of rest_bytes(): values have a shape and no data.
  Result<StoredMatrix> read_rest(WeightSource& source, std::byte* memory) const;
  /// Writes rows [begin, end) of the values.
  Result<void> read(std::int64_t begin, std::int64_t end, std::byte* to) const;

 private:
  std::span<const TensorPart> parts_;
  StackedForm form_;
  std::size_t rest_bytes_ = 0;
  std::int64_t row_bytes_ = 0;
  std::vector<std::unique_ptr<ValueReader>> readers_;  ///< of parts_
};

}  // namespace baton
