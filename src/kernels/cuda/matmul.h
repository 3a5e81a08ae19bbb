/// Matrix products on a CUDA device, by cuBLASLt over row-major weights.
#pragma once

#include <memory>
#include <string_view>

#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/cuda/device.h"

namespace baton::cuda {

/// Rows of one product in batch-invariant mode, whatever the number of rows asked for.
inline constexpr std::int64_t kInvariantRows = 32;

/// Makes and multiplies packed weights. Thread: engine only.
class MatmulEngine {
 public:
  /// `device` is kept by reference and must outlive this object. Fails if cuBLASLt cannot start or the device has no
  /// memory for its workspace.
  static Result<std::unique_ptr<MatmulEngine>> make(const Device& device, bool batch_invariant);
  ~MatmulEngine();
  MatmulEngine(const MatmulEngine&) = delete;
  MatmulEngine& operator=(const MatmulEngine&) = delete;

  /// Copies [n, k] to the device as f32, bf16 or f16. In batch-invariant mode each new shape is proven: rows alone, at
  /// every place of a tile and among 2048 must come out equal, or the weight is refused by name. Waits for the stream.
  Result<std::unique_ptr<PackedMatrix>> pack(ConstTensorView weight, DType dtype, std::string_view name);

  /// See matmul in kernels/ops.h.
  void multiply(const MatmulArgs& args);

 private:
  class Impl;
  explicit MatmulEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::cuda
