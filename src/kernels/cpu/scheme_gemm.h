/// Matmuls over weights in 8 and 4 bits. A tile of a weight is widened into the cache of the thread that multiplies
/// by it, and
/// the skinny GEMM's kernels read it there: memory is read once, in the bits that the file has.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/parallel.h"
#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/skinny_gemm.h"

namespace baton::cpu {

class SchemeMatrix;

/// Packs weights and multiplies by them. A row of the output has the same bits in any company. Thread: engine only.
class SchemeGemm {
 public:
  /// `parallel` is kept by reference and must outlive this object.
  SchemeGemm(const Parallel& parallel, CpuIsa isa);

  /// Packs a weight that is not dense for x of `dtype`, f32 or bf16. Errors: out_of_memory.
  Result<std::unique_ptr<PackedMatrix>> pack(const StoredMatrix& weight, DType dtype, std::string_view name);

  /// See matmul in kernels/ops.h; without the bias.
  void multiply(const MatmulArgs& args);

 private:
  /// Memory of one thread.
  struct Lane {
    std::vector<float> words;         ///< a tile of the weight, widened
    std::vector<float> partial;       ///< [kRowsAtOnce, kPanelColumns]: sums over the columns of one scale
    std::vector<float> sums;          ///< the same over all columns
    std::vector<float> scales;        ///< of the panel's columns
    std::vector<std::uint8_t> zeros;  ///< of each value of a step
  };

  ConstTensorView prepare_x(const ConstTensorView& x, const SchemeMatrix& matrix);
  void multiply_panel(const ConstTensorView& x, const SchemeMatrix& matrix, std::int64_t panel, const TensorView& out,
                      Lane& lane) const;
  void add_group(const ConstTensorView& x, const SchemeMatrix& matrix, std::int64_t panel, std::int64_t group,
                 Lane& lane) const;

  const Parallel& parallel_;
  CpuIsa isa_;
  std::vector<Lane> lanes_;  ///< by thread
  std::vector<std::byte> prepared_x_;
};

}  // namespace baton::cpu
