/// Matmuls on the CPU, by oneDNN and by our own GEMMs, over weights that are packed once.
#pragma once

#include <memory>
#include <string_view>

#include "core/parallel.h"
#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"

namespace baton::cpu {

/// Row count of oneDNN's GEMMs in batch-invariant mode, for any number of rows in a matmul.
inline constexpr std::int64_t kInvariantRows = 32;

/// Packs weights and multiplies by them. Thread: engine only.
class MatmulEngine {
 public:
  /// `parallel` is kept by reference and must outlive this object.
  MatmulEngine(const Parallel& parallel, CpuIsa isa, bool batch_invariant);
  ~MatmulEngine();
  MatmulEngine(const MatmulEngine&) = delete;
  MatmulEngine& operator=(const MatmulEngine&) = delete;

  /// Packs [n, k] for x of `dtype` (f32 or bf16). The first weight of a shape is multiplied by 1 to 256 rows with each
  /// GEMM that can, and the fastest is used for the shape from then on. In batch-invariant mode each new shape is also
  /// tested: a row must give the same bits alone, at every place of a tile and among 2048 rows. If our GEMMs fail the
  /// test they are not used; if oneDNN fails, the error names the weight. It is also an error if oneDNN has only
  /// reference code for the shape.
  Result<std::unique_ptr<PackedMatrix>> pack(ConstTensorView weight, DType dtype, std::string_view name);

  /// See matmul in kernels/ops.h.
  void multiply(const MatmulArgs& args);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::cpu
