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
///
///     scale = scales[r / scale_rows, c / scale_columns]
///     zero  = zeros[r, c / scale_columns], or 2^(bits - 1) without zeros
///     out[r] = sum over c of x[permutation[c]] * w[r, c], or of x[c] * w[r, c] without a permutation
///
/// A matrix of several tensors (q, k, v) has one form with the scales of each: a scale for the tensor or for the row is
/// scale_rows = 1 with scale_columns = k, and blocks are cut to rows that no two tensors share.
///
/// Three dtypes meet in a matmul. Storage is the scheme's, here. Activations have the dtype that pack_matrix is given.
/// Arithmetic is the backend's: weights become the activations' dtype in registers or in a tile of the cache, which is
/// exact for f8, i8 and i4 (at most 8 significant bits before the scale), sums are f32, and a scale multiplies the f32
/// sum over its columns once. So no weight is rounded, but in the long steps of CUDA that kernels/cuda/schemes says, where
/// some rows at a time are scaled in the activations' dtype. No backend keeps a dense copy.
///
/// For kernels: scale_columns is a multiple of kScaleStep, or k; a last group may be shorter. scales keep the file's
/// float dtype. Scales of one row are adjacent, as are zeros.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/result.h"
#include "core/tensor.h"

namespace baton {

enum class WeightScheme : std::uint8_t { dense, f8, i8, i4 };

constexpr std::string_view to_string(WeightScheme scheme) {
  switch (scheme) {
    case WeightScheme::dense: return "dense";
    case WeightScheme::f8: return "float8_e4m3";
    case WeightScheme::i8: return "int8";
    case WeightScheme::i4: return "int4";
  }
  return "unknown";
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
  ConstTensorView scales;       ///< [ceil(n / scale_rows), ceil(k / scale_columns)] float; no data if dense
  ConstTensorView zeros;        ///< [n, ceil(k / scale_columns)] u8, or no data
  ConstTensorView permutation;  ///< [k] i32, each column of x once, or no data
  std::int64_t scale_rows = 1;
  std::int64_t scale_columns = 1;

  /// Scales of a row.
  std::int64_t n_groups() const { return (shape[1] + scale_columns - 1) / scale_columns; }
};

/// Aborts if shapes and dtypes are not what StoredMatrix says.
void check_stored(const StoredMatrix& weight);

/// Refuses all schemes but dense, for a backend that has no other kernels. The error (unsupported) names the weight, the
/// scheme, the backend and what would serve.
Result<void> expect_dense(const StoredMatrix& weight, std::string_view backend, std::string_view name);

}  // namespace baton
