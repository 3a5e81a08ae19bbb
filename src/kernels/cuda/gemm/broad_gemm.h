/// Broad GEMM on a CUDA device of compute capability 9.0: matmuls of 33 to 128 rows by 16-bit weights that are large enough
/// for tiles of 48 to 224 of their rows on nearly all multiprocessors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <cuda.h>

#include "core/result.h"
#include "core/tensor.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/gemm/broad_layout.h"
#include "kernels/cuda/gemm/gated_map.h"

namespace baton::cuda {

/// How a weight is multiplied by some numbers of rows.
struct BroadChoice {
  std::int64_t fewest_rows = 0;
  std::int64_t most_rows = 0;
  BroadLayout layout;
  CUtensorMap map;                       ///< describes the weight to copies of a tile's rows
  std::optional<CUtensorMap> gated_map;  ///< and as that of a gated block
};

/// A weight [n, k] that the broad GEMM reads.
struct BroadWeight {
  ConstTensorView matrix;
  std::vector<BroadChoice> choices;  ///< rows that are missing here are cuBLASLt's
  /// Null for rows that are missing.
  const BroadChoice* choice_for(std::int64_t n_rows) const;
};

/// Thread: engine only. All matmuls of one object must be on the device's stream, because they share memory for partial
/// sums.
class BroadGemm {
 public:
  /// `device` is kept by reference and must outlive this object. Fails if the device has no memory for partial sums.
  static Result<std::unique_ptr<BroadGemm>> make(const Device& device);
  ~BroadGemm();
  BroadGemm(const BroadGemm&) = delete;
  BroadGemm& operator=(const BroadGemm&) = delete;

  /// Describes a weight: [n, k] bf16 or f16, n and k multiples of 8. Nothing on other devices, and where cuBLASLt costs less
  /// for all numbers of rows (broad_layout.h).
  std::optional<BroadWeight> describe(const ConstTensorView& weight) const;

  /// out = x W^T + bias with f32 sums, whose order depends on the weight's shape, the device's number of multiprocessors, and
  /// the choice that has the number of rows. x [rows, k] of the weight's dtype and out [rows, n] of the same dtype or f32, both
  /// aligned to 16 bytes; `bias` [n] of out's dtype, or null data. Weights may be read while the operation before still runs.
  void multiply(const ConstTensorView& x, const BroadWeight& weight, const ConstTensorView& bias, const TensorView& out) const;

  /// The same without a bias, and then the activation of a gated block: the bits of `multiply` to the weight's dtype and
  /// gated_activation. The choice has a gated_map; out is [rows, n / 2] of the weight's dtype.
  void multiply_gated(const ConstTensorView& x, const BroadWeight& weight, FusedGate gate, const TensorView& out) const;

 private:
  void launch(const ConstTensorView& x, const BroadWeight& weight, const std::byte* bias, const TensorView& out,
              std::optional<FusedGate> gate) const;
  BroadGemm(const Device& device, void* encode, std::byte* partials);

  const Device& device_;
  void* encode_;         ///< the driver's cuTensorMapEncodeTiled; null on other devices
  std::byte* partials_;  ///< all ones between matmuls
};

}  // namespace baton::cuda
