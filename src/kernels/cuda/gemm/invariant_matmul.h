/// Matmuls of the batch-invariant mode on a CUDA device: a row of out has the same bits for any number of rows.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <tuple>

#include "core/result.h"
#include "core/tensor.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/gemm/chain_gemm.h"
#include "kernels/cuda/gemm/cublas_matmul.h"

namespace baton::cuda {

/// A weight [n, k] in device memory.
struct InvariantWeight {
  ConstTensorView matrix;
  const ChainWeight* chain = nullptr;  ///< for the chain GEMM; null if it does not take this weight
};

/// Where the chain GEMM takes a weight, every sum is its chain: up to 64 rows it multiplies, and above that the fastest of
/// cuBLASLt's algorithms that were seen to give the chain's bits. Other weights (f32, other devices than compute
/// capability 9.0, odd shapes) are multiplied in tiles of 32 rows, and missing rows are padded, which is slow for many
/// rows. Thread: engine only.
class InvariantMatmul {
 public:
  /// All arguments are kept by reference and must outlive this object. `scratch`: device memory that other matmuls may use
  /// between calls.
  InvariantMatmul(const Device& device, CublasMatmul& cublas, const ChainGemm& chain_gemm, std::span<std::byte> scratch);

  /// Tests each new shape [n, k] of device memory and chooses its algorithms: rows must have the same bits alone, among
  /// others, and wherever they begin; otherwise the error names the weight. Waits for the stream.
  Result<void> prove(const InvariantWeight& weight, std::string_view name);

  /// Whether multiply writes outputs of this dtype: f32, the weight's, and others only where rows are padded.
  static bool writes(const InvariantWeight& weight, DType out_dtype);

  /// out = x W^T by a weight of a proven shape. x of the weight's dtype; it and out are aligned to 16 bytes.
  void multiply(const ConstTensorView& x, const InvariantWeight& weight, const TensorView& out);

 private:
  class Proof;
  struct Shape {
    std::int64_t n = 0;
    std::int64_t k = 0;
    DType dtype = DType::f32;
    DType out_dtype = DType::f32;
    auto operator<=>(const Shape&) const = default;
  };
  /// The proven algorithms of cuBLASLt by row bucket.
  struct Choices {
    std::int64_t most_rows = 0;  ///< of one of them; more rows are multiplied in several matmuls
    std::map<std::int64_t, CublasAlgorithm> of_bucket;
  };
  static Shape shape_of(const ConstTensorView& weight, DType out_dtype);
  /// The fastest of cuBLASLt's algorithms that is seen to give the chain's bits for `fewest` and `most` rows.
  std::optional<CublasAlgorithm> choose(Proof& proof, const ConstTensorView& weight, std::int64_t fewest, std::int64_t most,
                                        DType out_dtype);
  void multiply_chains(const ConstTensorView& x, const ChainWeight& weight, const TensorView& out);
  void multiply_tile(const ConstTensorView& x, const ConstTensorView& weight, const TensorView& out);

  const Device& device_;
  CublasMatmul& cublas_;
  const ChainGemm& chain_gemm_;
  std::span<std::byte> scratch_;
  std::map<Shape, Choices> choices_;
  std::set<std::tuple<std::int64_t, std::int64_t, DType>> proven_;
};

}  // namespace baton::cuda
