/// Statistics of repeated runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace baton {

/// The median; 0 for no values.
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

/// The smallest value that `share` (0 to 1) of all values do not exceed; 0 for no values.
inline double quantile_of(std::vector<float> values, double share) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace baton
