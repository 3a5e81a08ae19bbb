/// Matmuls in float64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "support/host_tensor.h"

namespace baton::testing {

/// out += x W^T for x [rows, k] and weight [n, k], [rows, n]; each sum begins with what is in out and adds its terms in order.
void add_matmul(std::span<double> out, std::span<const double> x, std::span<const double> weight, std::int64_t k);

/// x W^T for x [rows, k] and weight [n, k], in float64: [rows, n].
std::vector<double> matmul_reference(const HostTensor& x, const HostTensor& weight);

}  // namespace baton::testing
