/// Streaming GEMM on a CUDA device of compute capability 9.0: matmuls of 1 to 32 rows by the matrix units, which read a
/// large 16-bit weight once, nearly as fast as memory delivers it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <cuda.h>

#include "core/result.h"
#include "core/tensor.h"
#include "kernels/cuda/device/device.h"

namespace baton::cuda {

/// A weight [n, k] that the streaming GEMM reads.
struct StreamWeight {
  ConstTensorView matrix;
  CUtensorMap map;  ///< describes the matrix to the copies
};

/// Thread: engine only. All matmuls of one object must be on the device's stream, because they share memory for partial
/// sums.
class StreamGemm {
 public:
  /// `device` is kept by reference and must outlive this object. Fails if the device has no memory for partial sums.
  static Result<std::unique_ptr<StreamGemm>> make(const Device& device);
  ~StreamGemm();
  StreamGemm(const StreamGemm&) = delete;
  StreamGemm& operator=(const StreamGemm&) = delete;

  /// Describes a weight: [n, k] bf16 or f16, n a multiple of 64 and k of 8. Nothing on other devices, and for small
  /// weights, whose time is not that of reading them.
  std::optional<StreamWeight> describe(const ConstTensorView& weight) const;

  static constexpr std::int64_t kMostRows = 32;

  /// out = x W^T + bias with f32 sums, whose order depends on the weight's shape, the device, and whether there are up to
  /// 8, 16 or 32 rows. 1 to kMostRows rows x [rows, k] of the weight's dtype, aligned to 16 bytes; out [rows, n] of the same
  /// dtype or f32, aligned to 4; `bias` [n] of out's dtype, or null data. Weights may be read while the operation before
  /// still runs.
  void multiply(const ConstTensorView& x, const StreamWeight& weight, const ConstTensorView& bias, const TensorView& out) const;

 private:
  StreamGemm(const Device& device, void* encode, std::byte* partials);

  const Device& device_;
  void* encode_;         ///< the driver's cuTensorMapEncodeTiled; null on devices without it
  std::byte* partials_;  ///< all ones between matmuls
};

}  // namespace baton::cuda
