/// Reads one head after the other.
#include "model/source/head_matrices.h"

#include <cstddef>
#include <cstring>
#include <vector>

#include "core/check.h"
#include "model/source/stacked_matrix.h"

namespace baton {
namespace {

float f8_value(std::uint32_t code) {
  Float8E4M3 value;
  value.bits = static_cast<std::uint8_t>(code);
  return static_cast<float>(value);
}

/// The value that `code`, the bits of one element, stands for before its scale, less `zero`.
float value_of(WeightScheme scheme, std::uint32_t code, float zero) {
  if (scheme == WeightScheme::f4) return f4_value(code);
  return scheme == WeightScheme::f8 ? f8_value(code) : static_cast<float>(code) - zero;
}

float scale_of(const StoredMatrix& matrix, std::size_t index) {
  const auto byte = static_cast<std::uint8_t>(matrix.scales.data[index]);
  if (matrix.scales.dtype == DType::u8) return e8m0_value(byte);
  if (matrix.scales.dtype == DType::f8_e4m3) return f8_value(byte);
  return visit_float(matrix.scales.dtype, [&]<class T>(T) { return static_cast<float>(matrix.scales.elements<T>()[index]); });
}

/// The elements of one head [n, k] in f32.
class HeadReader {
 public:
  explicit HeadReader(WeightSource& source) : source_(source) {}

  Result<std::span<const float>> read(const TensorPart& head) {
    const std::span heads(&head, 1);
    const Shape shape = head.shape();
    weights_.resize(static_cast<std::size_t>(shape.n_elements()));
    BATON_TRY(const StackedForm form, stacked_form(heads, source_));
    if (form.form.scheme == WeightScheme::dense) {
      BATON_TRY_VOID(source_.read(head, {reinterpret_cast<std::byte*>(weights_.data()), DType::f32, shape}));
      return weights_;
    }
    stored_.resize(form.size_bytes() / sizeof(Line) + 1);
    BATON_TRY(const StoredMatrix matrix, read_stacked(heads, form, source_, stored_.data()->bytes));
    const auto k = static_cast<std::size_t>(shape[1]);
    for (std::int64_t row = 0; row < shape[0]; ++row)
      widen_row(matrix, row, std::span(weights_).subspan(static_cast<std::size_t>(row) * k, k));
    return weights_;
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  WeightSource& source_;
  std::vector<float> weights_;
  std::vector<Line> stored_;
};

}  // namespace

void widen_row(const StoredMatrix& matrix, std::int64_t row, std::span<float> weights) {
  const bool is_in_4_bits = matrix.scheme == WeightScheme::i4 || matrix.scheme == WeightScheme::f4;
  const auto* const values = reinterpret_cast<const std::uint8_t*>(matrix.values.data) + row * matrix.values.shape[1];
  const std::int64_t n_groups = matrix.n_groups();
  const auto* const zeros = reinterpret_cast<const std::uint8_t*>(matrix.zeros.data) + row * n_groups;
  const auto* const order = reinterpret_cast<const std::int32_t*>(matrix.permutation.data);
  const float of_row =
      matrix.row_scales.data == nullptr ? 1 : matrix.row_scales.elements<float>()[static_cast<std::size_t>(row)];
  for (std::int64_t c = 0; c < static_cast<std::int64_t>(weights.size()); ++c) {
    const std::int64_t group = c / matrix.scale_columns;
    const std::uint32_t code = is_in_4_bits ? (values[c / 2] >> (4 * (c % 2))) & 15u : values[c];
    const float zero = matrix.zeros.data != nullptr ? zeros[group] : is_in_4_bits ? 8 : 128;
    const float scale = scale_of(matrix, static_cast<std::size_t>(row / matrix.scale_rows * n_groups + group));
    weights[static_cast<std::size_t>(order == nullptr ? c : order[c])] = value_of(matrix.scheme, code, zero) * scale * of_row;
  }
}

Result<void> read_heads(std::span<const TensorPart> heads, bool is_transposed, WeightSource& source, const TensorView& out) {
  const std::int64_t n = heads.front().shape()[0];
  const std::int64_t k = heads.front().shape()[1];
  check(out.shape == (is_transposed ? Shape{out.shape[0], k, n} : Shape{out.shape[0], n, k}) &&
            out.shape[0] == static_cast<std::int64_t>(heads.size()),
        "read_heads: out has another shape");
  HeadReader reader(source);
  for (std::size_t head = 0; head < heads.size(); ++head) {
    BATON_TRY(const std::span<const float> weights, reader.read(heads[head]));
    visit_float(out.dtype, [&]<class T>(T) {
      const auto to = out.elements<T>().subspan(head * weights.size(), weights.size());
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(to.size()); ++i) {
        const std::int64_t from = is_transposed ? i % n * k + i / n : i;
        to[static_cast<std::size_t>(i)] = static_cast<T>(weights[static_cast<std::size_t>(from)]);
      }
    });
  }
  return {};
}

}  // namespace baton
