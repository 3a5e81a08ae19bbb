/// Rounds rows and copies the columns that are asked for.
#include "model/source/rounding_source.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include <fmt/format.h>

namespace baton {
namespace {

/// Weights that are read before they are rounded: they stay in a cache meanwhile.
constexpr std::int64_t kWeightsAtOnce = 1 << 20;

}  // namespace

Result<MatrixForm> RoundingSource::form_of(const ExpectedTensor& matrix) const {
  BATON_TRY(const MatrixForm stored, dense_.form_of(matrix));
  if (stored.scheme != WeightScheme::dense)
    return fail(ErrorCode::unsupported,
                fmt::format("tensor '{}' is stored as {} already; it is not quantised again (--quantization)", matrix.name,
                            to_string(stored.scheme)),
                "quantization");
  return kept_.contains(matrix.name) ? stored : rounded_form(rounding_, matrix.shape[1]);
}

Result<void> RoundingSource::read_stored(const TensorPart& part, const StoredRows& out) {
  const std::int64_t k = part.tensor.shape[1];
  const MatrixForm form = rounded_form(rounding_, k);
  if (form.scheme == WeightScheme::i4 && part.columns.begin % 2 != 0)
    return fail(ErrorCode::unsupported,
                fmt::format("tensor '{}': int4 cannot be cut at column {}", part.tensor.name, part.columns.begin));
  const std::int64_t rows_at_once = std::max<std::int64_t>(1, kWeightsAtOnce / k);
  rows_.resize(static_cast<std::size_t>(std::min(rows_at_once, part.rows.size()) * k));
  TensorPart piece{part.tensor, {}, {0, k}, 0};
  for (std::int64_t first = part.rows.begin; first < part.rows.end; first = piece.rows.end) {
    piece.rows = {first, std::min(part.rows.end, first + rows_at_once)};
    const std::span<float> weights = std::span(rows_).first(static_cast<std::size_t>(piece.rows.size() * k));
    BATON_TRY_VOID(dense_.read(piece, view_of(weights, {piece.rows.size(), k})));
    std::atomic<bool> is_finite = true;
    parallel_.for_ranges(piece.rows.size(), std::max<std::int64_t>(1, kElementsPerTask / k),
                         [&](std::int64_t begin, std::int64_t end) {
                           std::vector<std::byte> values(static_cast<std::size_t>(rounded_row_bytes(form.scheme, k)));
                           std::vector<float> scales(static_cast<std::size_t>((k - 1) / form.scale_columns + 1));
                           for (std::int64_t row = begin; row < end; ++row) {
                             const auto at = static_cast<std::size_t>(row * k);
                             if (!round_row(weights.subspan(at, static_cast<std::size_t>(k)), form, values.data(), scales))
                               is_finite = false;
                             copy_row(values, scales, form, part, first - part.rows.begin + row, out);
                           }
                         });
    if (!is_finite)
      return fail(ErrorCode::invalid_data,
                  fmt::format("tensor '{}' holds a number that is not finite and cannot be quantised", part.tensor.name));
  }
  return {};
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
