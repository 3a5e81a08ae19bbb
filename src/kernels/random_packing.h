/// What a backend with memory of its own offers beside Backend: it draws the random weights of `--load-format dummy` itself, so that
/// the host neither computes nor copies them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/result.h"
#include "core/split_mix.h"
#include "kernels/backend.h"
#include "kernels/formulas.h"

namespace baton {

/// Rows of a matrix of random numbers, parts of the rows of a tensor; rows of zeros follow.
struct RandomRows {
  std::uint64_t key = 0;
  float half_width = 0;         ///< numbers are from -half_width to half_width
  std::int64_t first = 0;       ///< place in the tensor of the first row's first element
  std::int64_t row_stride = 0;  ///< elements of a row of the tensor
  std::int64_t n_rows = 0;
  std::int64_t n_zero_rows = 0;
};

/// The number at a place of a tensor, before it is rounded to the weights' dtype. All but the last multiplication is exact, so that
/// devices agree.
BATON_HOST_DEVICE inline float random_element(std::uint64_t key, std::uint64_t place, float half_width) {
  const auto bits = static_cast<std::int32_t>(split_mix(key, place) >> 40);  // 24 bits: exact in f32
  return half_width * (static_cast<float>(bits) * 0x1p-23f - 1.0f);
}

class RandomPacking {
 public:
  /// The same as Backend::pack_matrix for the dense matrix [n, k] of these rows in `dtype`: the element of column c in row r of
  /// `rows[i]` is random_element(key, first + r * row_stride + c, half_width), rounded. `rows` has a row at least. Errors: those of pack_matrix.
  virtual Result<std::unique_ptr<PackedMatrix>> pack_random(std::span<const RandomRows> rows, std::int64_t k, DType dtype,
                                                            std::string_view name) = 0;

 protected:
  ~RandomPacking() = default;
};

}  // namespace baton
