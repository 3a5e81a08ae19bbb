/// What a weight in any scheme stands for.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/stored_matrix.h"

namespace baton::test {

/// What a scale stands for.
inline float scale_value(const ConstTensorView& scales, std::int64_t index) {
  const auto i = static_cast<std::size_t>(index);
  if (scales.dtype == DType::u8) return e8m0_value(static_cast<std::uint8_t>(scales.data[i]));
  if (scales.dtype == DType::f8_e4m3) {
    Float8E4M3 value;
    value.bits = static_cast<std::uint8_t>(scales.data[i]);
    return static_cast<float>(value);
  }
  return visit_float(scales.dtype, [&]<class T>(T) { return static_cast<float>(scales.elements<T>()[i]); });
}

/// Value minus zero.
inline float unscaled_value(const StoredMatrix& stored, std::int64_t row, std::int64_t column) {
  const auto bytes = [&](std::int64_t width, std::int64_t c) {
    return static_cast<std::uint8_t>(stored.values.data[row * width + c]);
  };
  const std::int64_t k = stored.shape[1];
  if (stored.scheme == WeightScheme::f8) {
    Float8E4M3 value;
    value.bits = bytes(k, column);
    return static_cast<float>(value);
  }
  const bool is_i4 = stored.scheme == WeightScheme::i4;
  const bool in_4_bits = is_i4 || stored.scheme == WeightScheme::f4;
  const int code = in_4_bits ? (bytes((k + 1) / 2, column / 2) >> (4 * (column % 2))) & 15 : bytes(k, column);
  if (stored.scheme == WeightScheme::f4) return f4_value(static_cast<std::uint32_t>(code));
  const std::int64_t group = row * stored.n_groups() + column / stored.scale_columns;
  const int zero = stored.zeros.data != nullptr ? static_cast<std::uint8_t>(stored.zeros.data[group]) : is_i4 ? 8 : 128;
  return static_cast<float>(code - zero);
}

/// The weight [n, k] that a matrix stands for, for x in its own order.
inline std::vector<float> dense_values(const StoredMatrix& stored) {
  const std::int64_t k = stored.shape[1];
  std::vector<float> dense(static_cast<std::size_t>(stored.shape.n_elements()));
  for (std::int64_t row = 0; row < stored.shape[0]; ++row)
    for (std::int64_t c = 0; c < k; ++c) {
      const std::int64_t group = row / stored.scale_rows * stored.n_groups() + c / stored.scale_columns;
      float scale = scale_value(stored.scales, group);
      if (stored.row_scales.data != nullptr) scale *= stored.row_scales.elements<float>()[static_cast<std::size_t>(row)];
      const std::int64_t column =
          stored.permutation.data == nullptr ? c : stored.permutation.elements<std::int32_t>()[static_cast<std::size_t>(c)];
      dense[static_cast<std::size_t>(row * k + column)] = unscaled_value(stored, row, c) * scale;
    }
  return dense;
}

}  // namespace baton::test
