/// Rounds rows and copies the columns that are asked for.
#include "model/source/rounding_source.h"

#include <cstring>

#include <fmt/format.h>

namespace baton {
Result<MatrixForm> RoundingSource::form_of(const ExpectedTensor& matrix) const {
  BATON_TRY(const MatrixForm stored, dense_.form_of(matrix));
  if (stored.scheme != WeightScheme::dense)
    return fail(ErrorCode::unsupported,
                fmt::format("tensor '{}' is stored as {} already and is not quantised again; the checkpoint loads as it is, "
                            "without --quantization",
                            matrix.name, to_string(stored.scheme)),
                "quantization");
  return kept_.contains(matrix.name) ? stored : rounded_form(rounding_, matrix.shape[1]);
}

Result<void> RoundingSource::read_stored(const TensorPart& part, const StoredRows& out) {
  const std::int64_t k = part.tensor.shape[1];
  const MatrixForm form = rounded_form(rounding_, k);
  if (form.scheme == WeightScheme::i4 && part.columns.begin % 2 != 0)
    return fail(ErrorCode::unsupported,
                fmt::format("tensor '{}': int4 cannot be cut at column {}", part.tensor.name, part.columns.begin));
  return rounder_.round(part.tensor, part.rows, form, [&](const RoundedRow& row) {
    copy_row(row.values, row.scales, form, part, row.row - part.rows.begin, out);
  });
}

void RoundingSource::copy_row(std::span<const std::byte> values, std::span<const float> scales, const MatrixForm& form,
                              const TensorPart& part, std::int64_t row, const StoredRows& out) const {
  const auto row_bytes = static_cast<std::size_t>(out.values.shape[1]);
  const auto begin = static_cast<std::size_t>(rounded_row_bytes(form.scheme, part.columns.begin));
  std::memcpy(out.values.data + static_cast<std::size_t>(row) * row_bytes, values.data() + begin, row_bytes);
  const std::int64_t n_groups = out.scales.shape[1];
  visit_float(out.scales.dtype, [&]<class T>(T) {
    const auto to = out.scales.elements<T>().subspan(static_cast<std::size_t>(row * n_groups));
    for (std::int64_t g = 0; g < n_groups; ++g)
      to[static_cast<std::size_t>(g)] =
          static_cast<T>(scales[static_cast<std::size_t>((part.columns.begin + g * out.scale_columns) / form.scale_columns)]);
  });
}

}  // namespace baton
