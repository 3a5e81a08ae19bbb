/// Random weights in the schemes of StoredMatrix, and what they are worth.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/stored_matrix.h"
#include "support/dense_values.h"
#include "support/host_tensor.h"

namespace baton::testing {

/// What a random weight has beside its values.
struct StoredForm {
  WeightScheme scheme = WeightScheme::f8;
  std::int64_t scale_rows = 1;
  std::int64_t scale_columns = 1;
  bool has_zeros = false;
  bool is_permuted = false;
  DType scale_dtype = DType::f32;  ///< f8_e4m3 of f4 adds scales of rows
};

/// A weight [n, k] that owns its memory.
struct StoredWeight {
  StoredMatrix matrix;
  std::vector<std::uint8_t> values, zeros;
  std::vector<std::int32_t> permutation;
  std::vector<float> row_scales;
  HostTensor scales{DType::f32, {1, 1}};
  HostTensor dense{DType::f32, {1, 1}};  ///< the same weight for x in its own order
};

/// The views of the result stay valid where it is moved.
inline StoredWeight random_stored(std::mt19937& random, const StoredForm& form, std::int64_t n, std::int64_t k) {
  StoredWeight made;
  StoredMatrix& stored = made.matrix;
  stored.scheme = form.scheme;
  stored.shape = {n, k};
  stored.scale_rows = form.scale_rows;
  stored.scale_columns = form.scale_columns;
  const auto draw = [&](std::int64_t size, int most) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random() % static_cast<unsigned>(most));
    return bytes;
  };
  const std::int64_t width = row_value_bytes(form.scheme, k);
  made.values = draw(n * width, 256);
  if (form.scheme == WeightScheme::f8)
    for (std::uint8_t& byte : made.values)
      if ((byte & 0x7f) == 0x7f) byte = 0;  // NaN
  stored.values = {reinterpret_cast<const std::byte*>(made.values.data()),
                   form.scheme == WeightScheme::f8 ? DType::f8_e4m3 : DType::u8,
                   {n, width}};
  const std::int64_t n_groups = stored.n_groups();
  const Shape scale_shape{(n + form.scale_rows - 1) / form.scale_rows, n_groups};
  if (form.scheme != WeightScheme::f4) {
    made.scales = random_tensor(random, form.scale_dtype, scale_shape);
  } else {  // exponents near 1, or any number but NaN
    made.scales = HostTensor(form.scale_dtype, scale_shape);
    for (std::byte& byte : made.scales.bytes) {
      const auto drawn = static_cast<std::uint8_t>(random() % (form.scale_dtype == DType::u8 ? 16 : 127));
      byte = static_cast<std::byte>(form.scale_dtype == DType::u8 ? 115 + drawn : drawn);
    }
    if (form.scale_dtype == DType::f8_e4m3) {
      for (std::int64_t row = 0; row < n; ++row) made.row_scales.push_back(0.001f * static_cast<float>(1 + random() % 7));
      stored.row_scales = view_of(std::span(std::as_const(made.row_scales)), {n});
    }
  }
  stored.scales = std::as_const(made.scales).view();
  if (form.has_zeros) {
    made.zeros = draw(n * n_groups, form.scheme == WeightScheme::i4 ? 16 : 256);
    stored.zeros = {reinterpret_cast<const std::byte*>(made.zeros.data()), DType::u8, {n, n_groups}};
  }
  if (form.is_permuted) {
    made.permutation.resize(static_cast<std::size_t>(k));
    std::iota(made.permutation.begin(), made.permutation.end(), 0);
    std::shuffle(made.permutation.begin(), made.permutation.end(), random);
    stored.permutation = {reinterpret_cast<const std::byte*>(made.permutation.data()), DType::i32, {k}};
  }
  made.dense = HostTensor(DType::f32, {n, k});
  const std::vector<float> dense = test::dense_values(stored);
  std::memcpy(made.dense.bytes.data(), dense.data(), made.dense.bytes.size());
  return made;
}

}  // namespace baton::testing
