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
#include <span>

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

/// What a rounded row stands for.
void widen_row(const MatrixForm& form, const std::byte* values, std::span<const float> scales, std::span<float> weights);

}  // namespace baton
