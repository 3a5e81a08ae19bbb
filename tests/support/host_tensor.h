/// Host tensors that own their memory, with random contents, and errors against float64.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace baton::testing {

/// Contiguous host memory with a dtype and a shape, initialised with 0xff (NaN).
struct HostTensor {
  DType dtype;
  Shape shape;
  std::vector<std::byte> bytes;

  HostTensor(DType type, Shape sizes)
      : dtype(type), shape(sizes), bytes(static_cast<std::size_t>(sizes.n_elements()) * size_bytes(type)) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
  }

  TensorView view() { return {bytes.data(), dtype, shape}; }
  ConstTensorView view() const { return {bytes.data(), dtype, shape}; }
  double at(std::int64_t index) const {
    return visit_float(dtype, [&](auto zero) {
      decltype(zero) value;
      std::memcpy(&value, bytes.data() + static_cast<std::size_t>(index) * sizeof(value), sizeof(value));
      return static_cast<double>(static_cast<float>(value));
    });
  }
  void set(std::int64_t index, float number) {
    visit_float(dtype, [&](auto zero) {
      const auto value = static_cast<decltype(zero)>(number);
      std::memcpy(bytes.data() + static_cast<std::size_t>(index) * sizeof(value), &value, sizeof(value));
    });
  }
};

/// Normally distributed numbers, rounded to the dtype.
HostTensor random_tensor(std::mt19937& random, DType dtype, Shape shape);

/// All numbers of a tensor.
std::vector<double> to_float64(const HostTensor& tensor);

/// The first `n_rows` rows of x [rows, n].
inline HostTensor first_rows(const HostTensor& x, std::int64_t n_rows) {
  HostTensor first(x.dtype, {n_rows, x.shape[1]});
  std::memcpy(first.bytes.data(), x.bytes.data(), first.bytes.size());
  return first;
}

/// Distance from 1 to the next larger value of the dtype.
inline double epsilon(DType dtype) { return dtype == DType::bf16 ? 0x1p-7 : dtype == DType::f16 ? 0x1p-10 : 0x1p-23; }

/// ||got - expected|| / ||expected||; the absolute norm if expected is 0. NaN never passes a bound.
double relative_error(const HostTensor& got, std::span<const double> expected);

}  // namespace baton::testing
