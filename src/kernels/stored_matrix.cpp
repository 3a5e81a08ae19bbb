/// Checks stored matrices.
#include "kernels/stored_matrix.h"

#include "core/check.h"

namespace baton {
namespace {

bool is_dense_dtype(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

/// The dtype and the width of a row of values; f32 stands for any float dtype.
DType dtype_of_values(WeightScheme scheme) {
  switch (scheme) {
    case WeightScheme::dense: return DType::f32;
    case WeightScheme::f8: return DType::f8_e4m3;
    case WeightScheme::i8:
    case WeightScheme::i4:
    case WeightScheme::f4: return DType::u8;
  }
  check_failed("StoredMatrix: no such scheme");
}

}  // namespace

void check_stored(const StoredMatrix& weight) {
  check(weight.shape.rank() == 2, "StoredMatrix: the weight must be [n, k]");
  const std::int64_t n = weight.shape[0];
  const std::int64_t k = weight.shape[1];
  const bool is_dense = weight.scheme == WeightScheme::dense;
  const DType dtype = dtype_of_values(weight.scheme);
  check(is_dense ? is_dense_dtype(weight.values.dtype) : weight.values.dtype == dtype, "StoredMatrix: values of another dtype");
  check(weight.values.shape == Shape{n, is_dense ? k : row_value_bytes(weight.scheme, k)},
        "StoredMatrix: values of another shape");
  check(!weight.has_int8_x || weight.scheme == WeightScheme::i8 || weight.scheme == WeightScheme::i4,
        "StoredMatrix: only integers multiply x in 8 bits");
  if (is_dense) return;
  check(weight.scale_rows >= 1 && weight.scale_columns >= 1, "StoredMatrix: a scale for no weight");
  check(weight.scale_columns >= k || weight.scale_columns % kScaleStep == 0, "StoredMatrix: scales of too few columns");
  const bool is_f4 = weight.scheme == WeightScheme::f4;
  const bool in_8_bits = weight.scales.dtype == DType::f8_e4m3 || weight.scales.dtype == DType::u8;
  check(is_f4 ? in_8_bits : is_dense_dtype(weight.scales.dtype), "StoredMatrix: scales must be float, or 8 bits for f4");
  check(weight.scales.shape == Shape{(n + weight.scale_rows - 1) / weight.scale_rows, weight.n_groups()},
        "StoredMatrix: scales of another shape");
  if (weight.zeros.data != nullptr)
    check((weight.scheme == WeightScheme::i8 || weight.scheme == WeightScheme::i4) && weight.zeros.dtype == DType::u8 &&
              weight.zeros.shape == Shape{n, weight.n_groups()},
          "StoredMatrix: zeros [n, groups] u8, of integers");
  if (weight.row_scales.data != nullptr)
    check(is_f4 && weight.row_scales.dtype == DType::f32 && weight.row_scales.shape == Shape{n},
          "StoredMatrix: row_scales [n] f32, of f4");
  if (weight.permutation.data != nullptr)
    check(weight.permutation.dtype == DType::i32 && weight.permutation.shape == Shape{k}, "StoredMatrix: permutation [k] i32");
}

}  // namespace baton
