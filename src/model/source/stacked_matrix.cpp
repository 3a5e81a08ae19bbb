/// Fits the scales of several parts to one form, and reads the parts below each other.
#include "model/source/stacked_matrix.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "core/check.h"

namespace baton {
namespace {

constexpr std::size_t kArrayAlignment = 64;

constexpr std::int64_t pieces_of(std::int64_t n, std::int64_t step) { return (n + step - 1) / step; }

/// The arrays of a stack in one piece of memory, or their sizes alone.
struct Arrays {
  TensorView values, scales, row_scales, zeros, permutation;
  std::size_t size_bytes = 0;
};

Arrays arrays_of(const StackedForm& stack, std::byte* memory, bool has_values = true) {
  const MatrixForm& form = stack.form;
  const std::int64_t n = stack.shape[0];
  const std::int64_t k = stack.shape[1];
  const std::int64_t n_groups = pieces_of(k, form.scale_columns);
  Arrays made;
  const auto place = [&](DType dtype, const Shape& shape) {
    const TensorView view{memory == nullptr ? nullptr : memory + made.size_bytes, dtype, shape};
    made.size_bytes += (view.size_bytes() + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
    return view;
  };
  const TensorView values{
      nullptr, form.scheme == WeightScheme::f8 ? DType::f8_e4m3 : DType::u8, {n, row_value_bytes(form.scheme, k)}};
  made.values = has_values ? place(values.dtype, values.shape) : values;
  made.scales = place(form.scale_dtype, {pieces_of(n, form.scale_rows), n_groups});
  if (form.has_row_scales) made.row_scales = place(DType::f32, {n});
  if (form.has_zeros) made.zeros = place(DType::u8, {n, n_groups});
  if (form.is_permuted) made.permutation = place(DType::i32, {k});
  return made;
}

/// What a part adds to the form of a stack in which it begins at row `first`. Sizes of 0 set no limit.
void narrow(MatrixForm& all, const MatrixForm& form, const TensorPart& part, std::int64_t first) {
  const std::int64_t k = part.tensor.shape[1];
  if (form.scale_columns < k) all.scale_columns = std::gcd(all.scale_columns, std::gcd(form.scale_columns, part.columns.begin));
  const std::int64_t rows = part.tensor.interleaved_dim > 0 ? 1 : std::gcd(form.scale_rows, part.rows.begin);
  all.scale_rows = std::gcd(all.scale_rows, std::gcd(rows, first));
  all.has_row_scales = all.has_row_scales || form.has_row_scales;
  all.has_zeros = all.has_zeros || form.has_zeros;
  if (form.scale_dtype != all.scale_dtype) all.scale_dtype = DType::f32;
}

}  // namespace

void part_pairs(const TensorView& rows, const ExpectedTensor& tensor) {
  if (tensor.interleaved_dim == 0) return;
  const auto n_heads = static_cast<std::size_t>(rows.shape[0] / tensor.head_dim);
  const auto half = static_cast<std::size_t>(tensor.interleaved_dim / 2);
  const std::size_t row_bytes = rows.size_bytes() / static_cast<std::size_t>(rows.shape[0]);
  std::vector<std::byte> head(row_bytes * 2 * half);
  for (std::size_t h = 0; h < n_heads; ++h) {
    std::byte* const data = rows.data + h * row_bytes * static_cast<std::size_t>(tensor.head_dim);
    std::memcpy(head.data(), data, head.size());
    for (std::size_t i = 0; i < half; ++i) {
      std::memcpy(data + i * row_bytes, head.data() + 2 * i * row_bytes, row_bytes);
      std::memcpy(data + (half + i) * row_bytes, head.data() + (2 * i + 1) * row_bytes, row_bytes);
    }
  }
}

std::size_t StackedForm::size_bytes() const { return arrays_of(*this, nullptr).size_bytes; }

Result<StackedForm> stacked_form(std::span<const TensorPart> parts, const WeightSource& source) {
  StackedForm stack;
  std::int64_t n = 0;
  for (const TensorPart& part : parts) {
    BATON_TRY(const MatrixForm form, source.form_of(part.tensor));
    if (n == 0) {
      stack.form = form;
      stack.form.scale_rows = stack.form.scale_columns = 0;
    } else if (form.scheme != stack.form.scheme || form.is_permuted != stack.form.is_permuted) {
      return fail(ErrorCode::unsupported,
                  fmt::format("tensors '{}' and '{}' are stored as {} and {}{}; matrices that are multiplied together must be "
                              "stored alike",
                              parts.front().tensor.name, part.tensor.name, to_string(stack.form.scheme), to_string(form.scheme),
                              form.is_permuted != stack.form.is_permuted ? " in another order of columns" : ""));
    } else if (form.scheme == WeightScheme::f4 && form.scale_dtype != stack.form.scale_dtype) {
      return fail(ErrorCode::unsupported,
                  fmt::format("tensors '{}' and '{}' have scales of two kinds (NVFP4's and MXFP4's); matrices that are "
                              "multiplied together must be stored alike",
                              parts.front().tensor.name, part.tensor.name));
    }
    narrow(stack.form, form, part, n);
    n += part.shape()[0];
  }
  const std::int64_t k = parts.front().columns.size();
  stack.shape = {n, k};
  MatrixForm& form = stack.form;
  if (form.scheme == WeightScheme::dense) return stack;
  if (form.scale_columns == 0 || form.scale_columns >= k) {  // a scale for a row
    form.scale_columns = k;
    form.scale_rows = 1;
  } else if (form.scale_columns % kScaleStep != 0) {
    return fail(ErrorCode::unsupported,
                fmt::format("tensor '{}' has scales for {} columns of a row on this rank; a multiple of {} is supported",
                            parts.front().tensor.name, form.scale_columns, kScaleStep));
  }
  form.scale_rows = std::max<std::int64_t>(1, form.scale_rows);
  return stack;
}

namespace {

Result<StoredMatrix> read_arrays(std::span<const TensorPart> parts, const StackedForm& stack, WeightSource& source,
                                 const Arrays& arrays, std::byte* memory) {
  const MatrixForm& form = stack.form;
  // Rows of zeros have scales of 0. All others are written.
  if (std::ranges::any_of(parts, [](const TensorPart& part) { return part.n_zero_rows > 0; }))
    std::memset(memory, 0, arrays.size_bytes);
  std::int64_t begin = 0;
  std::vector<std::byte> order;
  for (const TensorPart& part : parts) {
    const std::int64_t end = begin + part.rows.size();
    const auto rows_of = [&](const TensorView& array) { return array.data == nullptr ? array : array.rows(begin, end); };
    if (part.rows.size() > 0) {
      const StoredRows rows{form.scheme,
                            form.scale_rows,
                            form.scale_columns,
                            rows_of(arrays.values),
                            arrays.scales.rows(begin / form.scale_rows, pieces_of(end, form.scale_rows)),
                            rows_of(arrays.row_scales),
                            rows_of(arrays.zeros),
                            arrays.permutation};
      BATON_TRY_VOID(source.read_stored(part, rows));
      for (const TensorView& array : {rows.values, rows.scales, rows.row_scales, rows.zeros})
        if (array.data != nullptr) part_pairs(array, part.tensor);
    }
    if (form.is_permuted) {
      if (!order.empty() && std::memcmp(order.data(), arrays.permutation.data, order.size()) != 0)
        return fail(
            ErrorCode::unsupported,
            fmt::format("tensors '{}' and '{}' have their columns in two orders (desc_act); matrices that are multiplied "
                        "together must have one",
                        parts.front().tensor.name, part.tensor.name));
      order.assign(arrays.permutation.data, arrays.permutation.data + arrays.permutation.size_bytes());
    }
    begin = end + part.n_zero_rows;
  }
  StoredMatrix made;
  made.scheme = form.scheme;
  made.shape = stack.shape;
  made.values = arrays.values;
  made.scales = arrays.scales;
  made.row_scales = arrays.row_scales;
  made.zeros = arrays.zeros;
  made.permutation = arrays.permutation;
  made.scale_rows = form.scale_rows;
  made.scale_columns = form.scale_columns;
  return made;
}

}  // namespace

Result<StoredMatrix> read_stacked(std::span<const TensorPart> parts, const StackedForm& stack, WeightSource& source,
                                  std::byte* memory) {
  check(stack.form.scheme != WeightScheme::dense, "read_stacked: the matrices are dense");
  return read_arrays(parts, stack, source, arrays_of(stack, memory), memory);
}

Result<std::optional<StackedValues>> StackedValues::of(std::span<const TensorPart> parts, const StackedForm& form,
                                                       const WeightSource& source) {
  const auto* const value_source = dynamic_cast<const ValueSource*>(&source);
  if (value_source == nullptr || form.form.scheme == WeightScheme::dense || form.form.is_permuted) return std::nullopt;
  StackedValues values;
  values.parts_ = parts;
  values.form_ = form;
  const Arrays rest = arrays_of(form, nullptr, false);
  values.rest_bytes_ = rest.size_bytes;
  values.row_bytes_ = rest.values.shape[1];
  for (const TensorPart& part : parts) {
    if (part.tensor.interleaved_dim > 0 || part.n_zero_rows > 0) return std::nullopt;
    BATON_TRY(std::unique_ptr<ValueReader> reader, value_source->value_reader(part));
    values.readers_.push_back(std::move(reader));
  }
  return values;
}

Result<StoredMatrix> StackedValues::read_rest(WeightSource& source, std::byte* memory) const {
  return read_arrays(parts_, form_, source, arrays_of(form_, memory, false), memory);
}

Result<void> StackedValues::read(std::int64_t begin, std::int64_t end, std::byte* to) const {
  std::int64_t first = 0;  // of a part
  for (std::size_t i = 0; i < parts_.size() && first < end; first += parts_[i++].rows.size()) {
    const std::int64_t from = std::max(begin, first);
    const std::int64_t until = std::min(end, first + parts_[i].rows.size());
    if (from >= until) continue;
    const std::int64_t offset = parts_[i].rows.begin - first;
    BATON_TRY_VOID(readers_[i]->read({from + offset, until + offset}, to + (from - begin) * row_bytes_));
  }
  return {};
}

}  // namespace baton
