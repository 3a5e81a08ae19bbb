/// What a weight in any scheme stands for.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/stored_matrix.h"

namespace baton::test {

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
  const int code = is_i4 ? (bytes((k + 1) / 2, column / 2) >> (4 * (column % 2))) & 15 : bytes(k, column);
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
      const float scale = visit_float(stored.scales.dtype, [&]<class T>(T) {
        return static_cast<float>(stored.scales.elements<T>()[static_cast<std::size_t>(group)]);
      });
      const std::int64_t column =
          stored.permutation.data == nullptr ? c : stored.permutation.elements<std::int32_t>()[static_cast<std::size_t>(c)];
      dense[static_cast<std::size_t>(row * k + column)] = unscaled_value(stored, row, c) * scale;
    }
  return dense;
}

}  // namespace baton::test
