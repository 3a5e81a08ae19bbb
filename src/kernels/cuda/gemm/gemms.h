/// Weights in the memory of a CUDA device, and the GEMMs that multiply by them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/gemm/broad_gemm.h"
#include "kernels/cuda/gemm/chain_gemm.h"
#include "kernels/cuda/gemm/cublas_matmul.h"
#include "kernels/cuda/gemm/invariant_matmul.h"
#include "kernels/cuda/gemm/stream_gemm.h"

namespace baton::cuda {

/// A row of a weight's table: the GEMM for some numbers of rows. All but cuBLASLt's and that of the batch-invariant mode
/// need x at a multiple of 16 bytes and out of x's dtype or f32. Of these, stream, broad and chain need a bias of out's
/// dtype.
struct GemmChoice {
  enum class Gemm { stream, broad, chain, narrow, skinny, cublas, invariant };
  Gemm gemm = Gemm::cublas;
  std::int64_t fewest_rows = 1;
  std::int64_t most_rows = INT64_MAX;
  std::size_t out_alignment = 1;
};

/// A row-major weight [n, k].
class CudaMatrix final : public PackedMatrix {
 public:
  CudaMatrix() = default;
  ~CudaMatrix() override;
  CudaMatrix(const CudaMatrix&) = delete;
  CudaMatrix& operator=(const CudaMatrix&) = delete;
  ConstTensorView view() const { return {data, dtype, {n, k}}; }
  InvariantWeight invariant() const { return {view(), chain ? &*chain : nullptr}; }
  std::byte* data = nullptr;
  std::optional<StreamWeight> streamed;  ///< for the streaming GEMM, if it takes this weight
  std::optional<BroadWeight> broad;      ///< for the broad GEMM, if it takes this weight
  std::optional<ChainWeight> chain;      ///< for the chain GEMM, if it takes this weight
  std::vector<GemmChoice> choices;       ///< the first that fits a matmul serves it; the last fits all
};

/// The GEMMs of a device, and memory that they share. Thread: engine only.
struct Gemms {
  Gemms() = default;
  ~Gemms();
  Gemms(const Gemms&) = delete;
  Gemms& operator=(const Gemms&) = delete;
  /// `device` is kept by reference and must outlive the result. Fails if cuBLASLt cannot start or the device has no
  /// memory.
  static Result<std::unique_ptr<Gemms>> make(const Device& device, bool batch_invariant);

  /// Scratch memory for weights during packing, padded rows, outputs in dtypes that cuBLASLt does not write, and what
  /// becomes dense of quantised weights.
  static constexpr std::size_t kScratchBytes = 64 << 20;

  std::unique_ptr<CublasMatmul> cublas;
  std::unique_ptr<StreamGemm> stream;
  std::unique_ptr<BroadGemm> broad;
  std::optional<ChainGemm> chain;
  std::optional<InvariantMatmul> invariant;  ///< in batch-invariant mode
  std::byte* scratch = nullptr;
  bool has_loaded_cublas = false;
};

}  // namespace baton::cuda
