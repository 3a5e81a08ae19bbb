/// Chain GEMM on a CUDA device of compute capability 9.0: matmuls whose rows have the same bits for any number of rows,
/// because each sum is one chain over all of k. It serves batch-invariant mode up to 64 rows, and otherwise 33 to 48
/// rows.
#pragma once

#include <optional>

#include <cuda.h>

#include "core/tensor.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/gemm/gated_map.h"

namespace baton::cuda {

/// A weight [n, k] that the chain GEMM reads.
struct ChainWeight {
  ConstTensorView matrix;
  int width;                             ///< rows of the weight in a tile
  bool fills_device;                     ///< tiles of 32 rows or more keep 95% of the multiprocessors busy
  CUtensorMap map;                       ///< describes the matrix to the copies
  std::optional<CUtensorMap> gated_map;  ///< and as that of a gated block
};

/// Thread: engine only.
class ChainGemm {
 public:
  /// `device` is kept by reference and must outlive this object.
  explicit ChainGemm(const Device& device);

  /// Describes a weight: [n, k] bf16 or f16, n and k multiples of 8. Nothing on other devices.
  std::optional<ChainWeight> describe(const ConstTensorView& weight) const;

  /// out = x W^T + bias with f32 sums: wgmma adds 16 terms at a time, from the first k to the last, to a sum that
  /// begins at 0. x [rows, k] of the weight's dtype and out [rows, n] of the same dtype or f32, both aligned to 16 bytes;
  /// `bias` [n] of out's dtype, or null data. Weights may be read while the operation before still runs.
  void multiply(const ConstTensorView& x, const ChainWeight& weight, const ConstTensorView& bias, const TensorView& out) const;

  /// The same without a bias, and then the activation of a gated block: the bits of `multiply` to the weight's dtype and
  /// gated_activation. The weight has a gated_map; out is [rows, n / 2] of the weight's dtype.
  void multiply_gated(const ConstTensorView& x, const ChainWeight& weight, FusedGate gate, const TensorView& out) const;

 private:
  template <bool kIsGated>
  void launch(const ConstTensorView& x, const ChainWeight& weight, const std::byte* bias, const TensorView& out,
              FusedGate gate) const;

  const Device& device_;
  void* encode_;  ///< see tensor_map_encoder; null on other devices
};

}  // namespace baton::cuda
