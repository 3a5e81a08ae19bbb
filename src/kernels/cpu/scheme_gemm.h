/// Matmuls over weights in 8 and 4 bits: packed in panels (scheme_panels.h), read once from memory in the bits that the
/// file has, and made words of x's dtype in registers, or with many rows in a tile of the cache.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/parallel.h"
#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/pages.h"
#include "kernels/cpu/scheme_panels.h"
#include "kernels/row_packing.h"

namespace baton::cpu {

class SchemeMatrix;

/// Packs weights and multiplies by them. A row of the output has the same bits in any company. Thread: engine only.
class SchemeGemm {
 public:
  /// `parallel` is kept by reference and must outlive this object. `has_vbmi`: see scheme_kernels.
  SchemeGemm(const Parallel& parallel, CpuIsa isa, bool has_vbmi);

  /// Packs a weight that is not dense for x of `dtype`, f32 or bf16. Errors: out_of_memory.
  /// Values that have no data come from `read`, whose errors are passed on.
  Result<std::unique_ptr<PackedMatrix>> pack(const StoredMatrix& weight, DType dtype, std::string_view name,
                                             const ReadValues* read = nullptr);

  /// See matmul in kernels/ops.h; without the bias.
  void multiply(const MatmulArgs& args);

 private:
  /// Rows that a panel multiplies before the next rows: their sums stay in the cache.
  static constexpr std::int64_t kRowsAtOnce = 64;

  /// Memory of one thread.
  struct Lane {
    alignas(64) std::array<std::byte, kTileSteps * kStepBytes> tile;
    alignas(64) std::array<float, kRowsAtOnce * kPanelColumns> partial, sums;
  };

  ConstTensorView prepare_x(const ConstTensorView& x, const SchemeMatrix& matrix);
  void add_columns(const ConstTensorView& x, const SchemeMatrix& matrix);
  void multiply_panel(SchemeTask task, const SchemeKernel& kernel, std::int64_t panel, std::span<const float> row_scales,
                      const TensorView& out, Lane& lane) const;

  const Parallel& parallel_;
  CpuIsa isa_;
  bool has_vbmi_;
  PagePool pages_;
  std::vector<Lane> lanes_;  ///< by thread
  std::vector<std::byte> prepared_x_;
  std::vector<float> x_sums_;
};

}  // namespace baton::cpu
