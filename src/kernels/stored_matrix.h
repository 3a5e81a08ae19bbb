/// A weight as it comes from a file to a backend: values in the bits that the file has, and what they are multiplied
/// by.
///
/// There is one internal form for each width, whatever the layout of the file was (model/source/ unpacks those):
///
///     scheme  values                                    w[r, c]
///     dense   [n, k] f32, bf16 or f16                   values[r, c]
///     f8      [n, k] f8_e4m3, without NaN               values[r, c] * scale
///     i8      [n, k] u8                                 (values[r, c] - zero) * scale
///     i4      [n, ceil(k / 2)] u8, even c in the low    (values[r, c] - zero) * scale
///             four bits
///     f4      as i4                                     f4_value(values[r, c]) * scale * row_scales[r]
///
///     scale = scales[r / scale_rows, c / scale_columns]; of f4 in 8 bits: f8_e4m3 without NaN (NVFP4), or u8 for
///             e8m0_value of it (MXFP4)
///     zero  = zeros[r, c / scale_columns], or 2^(bits - 1) without zeros
///     out[r] = sum over c of x[permutation[c]] * w[r, c], or of x[c] * w[r, c] without a permutation
///
/// A matrix of several tensors (q, k, v) has one form with the scales of each: a scale for the tensor or for the row is
/// scale_rows = 1 with scale_columns = k, and blocks are cut to rows that no two tensors share.
///
/// Storage has the scheme's dtype. Activations have the one that pack_matrix is given. Arithmetic is the backend's: weights
/// become the activations' dtype in registers or a tile of the cache, exactly (8 significant bits at most before the
/// scale), sums are f32, and a scale multiplies the f32 sum over its columns once. So no weight is rounded, but in two
/// cases on CUDA: in long steps (kernels/cuda/schemes/scheme_gemm.h), and numbers of MXFP4 far below their row's largest
/// (kernels/cuda/schemes/scheme_layout.h). No backend keeps a dense copy.
///
/// For kernels: scale_columns is a multiple of kScaleStep, or k; a last group may be shorter. scales keep the file's
/// dtype. Scales of one row are adjacent, as are zeros.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "core/tensor.h"

namespace baton {

enum class WeightScheme : std::uint8_t { dense, f8, i8, i4, f4 };

constexpr std::string_view to_string(WeightScheme scheme) {
  switch (scheme) {
    case WeightScheme::dense: return "dense";
    case WeightScheme::f8: return "float8_e4m3";
    case WeightScheme::i8: return "int8";
    case WeightScheme::i4: return "int4";
    case WeightScheme::f4: return "float4_e2m1";
  }
  return "unknown";
}

/// Bytes of the values of a row of k columns; not of dense weights.
constexpr std::int64_t row_value_bytes(WeightScheme scheme, std::int64_t k) {
  return scheme == WeightScheme::i4 || scheme == WeightScheme::f4 ? (k + 1) / 2 : k;
}

/// What four bits of f4 (e2m1) stand for: a sign, two bits of exponent, one of mantissa.
constexpr float f4_value(std::uint32_t code) {
  constexpr float kMagnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return (code & 8u) != 0 ? -kMagnitudes[code & 7u] : kMagnitudes[code & 7u];
}

/// 2^(exponent - 127); NaN for 255.
constexpr float e8m0_value(std::uint8_t exponent) {
  if (exponent == 255) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(exponent == 0 ? 0x00400000u : static_cast<std::uint32_t>(exponent) << 23);
}

/// Columns that share a scale are a multiple of this many, if the row has more than one scale.
inline constexpr std::int64_t kScaleStep = 16;

struct StoredMatrix {
  StoredMatrix() = default;
  /// Dense weights [n, k] of any float dtype.
  StoredMatrix(ConstTensorView dense) : shape(dense.shape), values(dense) {}
  StoredMatrix(TensorView dense) : StoredMatrix(ConstTensorView(dense)) {}

  WeightScheme scheme = WeightScheme::dense;
  Shape shape;                  ///< [n, k]
  ConstTensorView values;       ///< as the table above says
  ConstTensorView scales;       ///< [ceil(n / scale_rows), ceil(k / scale_columns)] float, or of f4; no data if dense
  ConstTensorView row_scales;   ///< [n] f32 of f4, or no data: 1
  ConstTensorView zeros;        ///< [n, ceil(k / scale_columns)] u8, or no data
  ConstTensorView permutation;  ///< [k] i32, each column of x once, or no data
  std::int64_t scale_rows = 1;
  std::int64_t scale_columns = 1;
  bool has_int8_x =
      false;  ///< of i8 and i4: each x is rounded to 8 bits, see kernels/ops.h. Needs BackendCapabilities::has_int8_x

  /// Scales of a row.
  std::int64_t n_groups() const { return (shape[1] + scale_columns - 1) / scale_columns; }
};

/// Aborts if shapes and dtypes are not what StoredMatrix says.
void check_stored(const StoredMatrix& weight);

}  // namespace baton
