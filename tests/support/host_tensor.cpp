#include "support/host_tensor.h"

#include <cmath>

namespace baton::testing {

HostTensor random_tensor(std::mt19937& random, DType dtype, Shape shape) {
  HostTensor tensor(dtype, shape);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < shape.n_elements(); ++i) tensor.set(i, normal(random));
  return tensor;
}

std::vector<double> to_float64(const HostTensor& tensor) {
  std::vector<double> numbers(static_cast<std::size_t>(tensor.shape.n_elements()));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = tensor.at(static_cast<std::int64_t>(i));
  return numbers;
}

double relative_error(const HostTensor& got, std::span<const double> expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(got.at(static_cast<std::int64_t>(i)) - expected[i], 2);
    norm += expected[i] * expected[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

}  // namespace baton::testing
