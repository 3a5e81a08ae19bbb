/// Matmuls on the CPU, by oneDNN and GEMMs of our own over weights packed once.
#pragma once

#include <memory>
#include <string_view>

#include "core/parallel.h"
#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"

namespace baton::cpu {

/// Rows of oneDNN's GEMMs in batch-invariant mode, whatever the number of rows asked for.
inline constexpr std::int64_t kInvariantRows = 32;

/// Makes and multiplies packed weights. Thread: engine only.
class MatmulEngine {
 public:
  /// Parallel is kept by reference and must outlive this object.
  MatmulEngine(const Parallel& parallel, CpuIsa isa, bool batch_invariant);
  ~MatmulEngine();
  MatmulEngine(const MatmulEngine&) = delete;
  MatmulEngine& operator=(const MatmulEngine&) = delete;

  /// Packs [n, k] for x of `dtype` (f32 or bf16). The first weight of a shape is multiplied by 1 to 256 rows by each
  /// GEMM that can, and the fastest serves the shape from then on. In batch-invariant mode each new shape is proven as
  /// well: rows alone, at every place of a tile and among 2048 must come out equal, or our GEMMs are given up, or the
  /// weight is refused by name. Fails also if oneDNN has only its reference code for the shape.
  Result<std::unique_ptr<PackedMatrix>> pack(ConstTensorView weight, DType dtype, std::string_view name);

  /// See matmul in kernels/ops.h.
  void multiply(const MatmulArgs& args);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::cpu
