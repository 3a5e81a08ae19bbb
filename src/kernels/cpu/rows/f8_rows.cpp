#include "kernels/cpu/rows/f8_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace baton::cpu {

void store_f8_row(const float* row, std::int64_t n, const TensorView& out, const TensorView& scales, std::int64_t r) {
  float most = 0;
  for (std::int64_t i = 0; i < n; ++i) most = std::max(most, std::abs(row[i]));
  const float scale = std::max(most / Float8E4M3::kLargest, 0x1p-126f);
  const float factor = 1 / scale;
  auto* const to = reinterpret_cast<Float8E4M3*>(out.data) + r * n;
  for (std::int64_t i = 0; i < n; ++i) to[i] = Float8E4M3(row[i] * factor);
  scales.elements<float>()[static_cast<std::size_t>(r)] = scale;
}

void widen_f8(const ConstTensorView& x, const TensorView& out) {
  const auto values = x.elements<Float8E4M3>();
  visit_float(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::array<T, 256> number;
    for (std::size_t code = 0; code < number.size(); ++code) {
      Float8E4M3 value;
      value.bits = static_cast<std::uint8_t>(code);
      number[code] = static_cast<T>(static_cast<float>(value));
    }
    T* const to = reinterpret_cast<T*>(out.data);
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = number[values[i].bits];
  });
}

}  // namespace baton::cpu
