/// Matmuls on a CUDA device over row-major weights.
#pragma once

#include <memory>
#include <string_view>

#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/device.h"

namespace baton::cuda {

/// Packs weights and multiplies by them. Thread: engine only.
class MatmulEngine {
 public:
  /// `device` is kept by reference and must outlive this object. Fails if cuBLASLt cannot start or the device has no
  /// memory for its workspace.
  static Result<std::unique_ptr<MatmulEngine>> make(const Device& device, bool batch_invariant);
  ~MatmulEngine();
  MatmulEngine(const MatmulEngine&) = delete;
  MatmulEngine& operator=(const MatmulEngine&) = delete;

  /// Copies [n, k] to the device as f32, bf16 or f16. In batch-invariant mode each new shape is tested (see
  /// InvariantMatmul::prove). Waits for the stream.
  Result<std::unique_ptr<PackedMatrix>> pack(ConstTensorView weight, DType dtype, std::string_view name);

  /// See matmul in kernels/ops.h.
  void multiply(const MatmulArgs& args);

 private:
  class Impl;
  explicit MatmulEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::cuda
