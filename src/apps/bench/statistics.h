/// What a benchmark says of repeated runs.
#pragma once

#include <algorithm>
#include <vector>

namespace baton {

/// 0 for no values.
inline double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

/// (largest - smallest) / median; 0 for no values.
inline double spread_of(const std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return (*high - *low) / median_of(values);
}

}  // namespace baton
