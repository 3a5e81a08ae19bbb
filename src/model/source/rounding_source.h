/// A source whose dense matrices are rounded while they are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "core/parallel.h"
#include "core/result.h"
#include "model/source/rounding.h"
#include "model/source/source.h"

namespace baton {

/// Reads whole rows of another source, some at a time, and rounds them: no dense copy of a matrix is made, and a part of a matrix
/// has the values of the whole one.
class RoundingSource final : public WeightSource {
 public:
  /// `kept`: names of matrices that stay as they are. `dense` and `parallel` are kept by reference and must outlive this object.
  RoundingSource(WeightSource& dense, const WeightRounding& rounding, std::set<std::string> kept, const Parallel& parallel)
      : dense_(dense), rounding_(rounding), kept_(std::move(kept)), rounder_(dense, parallel) {}

  Result<void> read(const TensorPart& part, TensorView out) override { return dense_.read(part, out); }
  /// Errors (unsupported): a matrix that is quantised already. Those of the other source.
  Result<MatrixForm> form_of(const ExpectedTensor& matrix) const override;
  /// Errors: those of RowRounder.
  Result<void> read_stored(const TensorPart& part, const StoredRows& out) override;

 private:
  void copy_row(std::span<const std::byte> values, std::span<const float> scales, const MatrixForm& form,
                const TensorPart& part, std::int64_t row, const StoredRows& out) const;

  WeightSource& dense_;
  const WeightRounding rounding_;
  const std::set<std::string> kept_;
  RowRounder rounder_;
};

}  // namespace baton
