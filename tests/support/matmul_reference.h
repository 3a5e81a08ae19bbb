/// Matmuls in float64.
#pragma once

#include <cstdint>
#include <vector>

#include "support/host_tensor.h"

namespace baton::testing {

/// x W^T for x [rows, k] and weight [n, k], in float64: [rows, n].
inline std::vector<double> matmul_reference(const HostTensor& x, const HostTensor& weight) {
  const std::int64_t k = x.shape[1];
  std::vector<double> out;
  for (std::int64_t row = 0; row < x.shape[0]; ++row)
    for (std::int64_t column = 0; column < weight.shape[0]; ++column) {
      double sum = 0;
      for (std::int64_t i = 0; i < k; ++i) sum += x.at(row * k + i) * weight.at(column * k + i);
      out.push_back(sum);
    }
  return out;
}

}  // namespace baton::testing
