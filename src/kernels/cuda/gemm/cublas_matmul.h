/// Matmuls by cuBLASLt over row-major weights. Row-major out = x W^T is cuBLASLt's column-major out^T = (W^T)^T x^T, so
/// nothing is transposed in memory.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/result.h"
#include "core/tensor.h"
#include "kernels/cuda/device/device.h"

struct cublasLtContext;

namespace baton::cuda {

/// The parameters of a matmul by cuBLASLt.
struct CublasProduct {
  std::int64_t n_rows = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType dtype = DType::f32;
  DType out_dtype = DType::f32;
  std::int32_t x_alignment = 16;    ///< bytes; 16 for the widest accesses
  std::int32_t out_alignment = 16;  ///< bytes
  bool adds_bias = false;           ///< adds a vector of out's type in the epilogue
  std::int64_t out_stride = 0;      ///< from a row of out to the next; 0: n
  auto operator<=>(const CublasProduct&) const = default;
};

/// One of cuBLASLt's ways to multiply: the bits of a cublasLtMatmulAlgo_t.
using CublasAlgorithm = std::array<std::uint64_t, 8>;

/// The largest number of rows that one algorithm is used for: powers of two up to 8, then multiples of a growing step.
std::int64_t row_bucket_of(std::int64_t n_rows);

/// Thread: engine only. All matmuls of one object must be on the device's stream, because they share a workspace.
class CublasMatmul {
 public:
  /// `device` is kept by reference and must outlive this object. Fails if cuBLASLt cannot start or the device has no
  /// memory for its workspace.
  static Result<std::unique_ptr<CublasMatmul>> make(const Device& device);
  ~CublasMatmul();
  CublasMatmul(const CublasMatmul&) = delete;
  CublasMatmul& operator=(const CublasMatmul&) = delete;

  /// Requests cuBLASLt's first choice for this product, which is kept; false if there is none.
  bool prepare(const CublasProduct& product);

  /// out = x W^T + bias by cuBLASLt's first choice for the row bucket. `weight` [n, k] in device memory; out f32 or of the
  /// weight's dtype; `bias` [n] of any float dtype, or null data. A bias that the matmul cannot add is added afterwards.
  void multiply(const ConstTensorView& x, const ConstTensorView& weight, const ConstTensorView& bias, const TensorView& out);

  /// The same for columns of a wider matrix, without a bias: `out` begins at the first of them, and rows of the matrix are
  /// `out_stride` elements apart.
  void multiply_columns(const ConstTensorView& x, const ConstTensorView& weight, const TensorView& out,
                        std::int64_t out_stride);

  /// cuBLASLt's choices that do not split k, fastest first by its own estimate.
  std::vector<CublasAlgorithm> unsplit_choices(const CublasProduct& product);

  /// out = x W^T by this algorithm; false, and nothing is done, if it does not support the number of rows.
  bool multiply_by(const CublasAlgorithm& algorithm, const ConstTensorView& x, const ConstTensorView& weight,
                   const TensorView& out);

 private:
  struct Description;
  explicit CublasMatmul(const Device& device) : device_(device) {}
  Result<void> open();
  const CublasAlgorithm* algorithm_of(const CublasProduct& product);
  const CublasAlgorithm* algorithm_for(const CublasProduct& product, Description& description);
  std::vector<CublasAlgorithm> choices(const CublasProduct& product, int n_choices);
  bool supports(const CublasAlgorithm& algorithm, Description& description);
  void run(const CublasAlgorithm& algorithm, Description& description, const ConstTensorView& x, const ConstTensorView& weight,
           const TensorView& out);

  const Device& device_;
  cublasLtContext* handle_ = nullptr;
  std::byte* workspace_ = nullptr;
  std::map<CublasProduct, CublasAlgorithm> algorithms_;
};

}  // namespace baton::cuda
