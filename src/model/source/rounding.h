/// Rounds dense weights to 8 or 4 bits: to nearest, symmetric, without data that is measured first.
///
///     scheme  scales                  largest weight of a scale becomes  codes
///     f8      float32, one a row      448                                -448 to 448
///     i8      float32, one a row      127.5, which is cut                -128 to 127
///     i4      bfloat16, one a group   7.5, which is cut                  -8 to 7
///
/// These are the scales that compressed-tensors computes for the same weights. A weight is divided by the scale as it is stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/parallel.h"
#include "core/result.h"
#include "kernels/stored_matrix.h"
#include "model/source/source.h"

namespace baton {

/// What weights are rounded to.
struct WeightRounding {
  static constexpr std::int64_t kGroup = 128;

  WeightScheme scheme = WeightScheme::dense;  ///< dense: weights stay as they are
  std::int64_t group = kGroup;                ///< of i4: most columns that share a scale
  bool rounds_lm_head = false;                ///< also the output layer

  bool is_on() const { return scheme != WeightScheme::dense; }
};

/// The form of a rounded matrix with rows of `k` weights. Columns of i4 share a scale in groups of `group`, or of the half, the
/// quarter... that divides k; where that is less than kScaleStep, the whole row does.
MatrixForm rounded_form(const WeightRounding& rounding, std::int64_t k);

/// Bytes of the values of a row.
constexpr std::int64_t rounded_row_bytes(WeightScheme scheme, std::int64_t k) {
  return scheme == WeightScheme::i4 ? (k + 1) / 2 : k;
}

/// Rounds one row. Writes its values as StoredMatrix has them, and its scales, which are exact in form.scale_dtype. False if a
/// weight is not finite.
bool round_row(std::span<const float> weights, const MatrixForm& form, std::byte* values, std::span<float> scales);

/// A row that was rounded, valid within the call that gets it.
struct RoundedRow {
  std::int64_t row = 0;            ///< of the matrix
  std::span<const float> weights;  ///< before they were rounded
  std::span<const std::byte> values;
  std::span<const float> scales;
};

/// Reads rows of dense matrices, some at a time, and rounds them. Keeps its memory for the next matrix.
class RowRounder {
 public:
  /// Both must outlive it.
  RowRounder(WeightSource& dense, const Parallel& parallel) : dense_(dense), parallel_(parallel) {}

  /// Calls `take` for each of `rows`, from several threads at once. Errors (invalid_data): a weight that is not finite; those of the
  /// source.
  Result<void> round(const ExpectedTensor& matrix, IndexRange rows, const MatrixForm& form,
                     const std::function<void(const RoundedRow&)>& take);

 private:
  WeightSource& dense_;
  const Parallel& parallel_;
  std::vector<float> weights_;
};

/// What a rounded row stands for.
void widen_row(const MatrixForm& form, const std::byte* values, std::span<const float> scales, std::span<float> weights);

}  // namespace baton
