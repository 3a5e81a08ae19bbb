#include "support/matmul_reference.h"

#include <algorithm>
#include <cstddef>

namespace baton::testing {

void add_matmul(std::span<double> out, std::span<const double> x, std::span<const double> weight, std::int64_t k) {
  // A sum waits for each of its additions, so eight columns are added at a time.
  constexpr std::size_t kColumns = 8;
  const auto k_of = static_cast<std::size_t>(k);
  if (k_of == 0) return;
  const std::size_t n_rows = x.size() / k_of;
  const std::size_t n = weight.size() / k_of;
  std::vector<double> columns(k_of * kColumns);
  for (std::size_t first = 0; first < n; first += kColumns) {
    const std::size_t n_columns = std::min(kColumns, n - first);
    for (std::size_t column = 0; column < n_columns; ++column)
      for (std::size_t i = 0; i < k_of; ++i) columns[i * kColumns + column] = weight[(first + column) * k_of + i];
    for (std::size_t row = 0; row < n_rows; ++row) {
      double sums[kColumns] = {};
      double* const to = &out[row * n + first];
      std::copy_n(to, n_columns, sums);
      for (std::size_t i = 0; i < k_of; ++i)
        for (std::size_t column = 0; column < kColumns; ++column)
          sums[column] += x[row * k_of + i] * columns[i * kColumns + column];
      std::copy_n(sums, n_columns, to);
    }
  }
}

std::vector<double> matmul_reference(const HostTensor& x, const HostTensor& weight) {
  std::vector<double> out(static_cast<std::size_t>(x.shape[0] * weight.shape[0]));
  add_matmul(out, to_float64(x), to_float64(weight), x.shape[1]);
  return out;
}

}  // namespace baton::testing
