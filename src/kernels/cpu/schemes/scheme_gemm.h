/// Matmuls over weights in 8 and 4 bits: packed in panels (panels.h), read once from memory in the bits that the
/// file has, and made words of x's dtype in registers, or with many rows in a tile of the cache. Where x is rounded to 8 bits
/// (StoredMatrix::has_int8_x), integers are multiplied by integers (int8.h).
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
#include "kernels/cpu/schemes/int8.h"
#include "kernels/cpu/schemes/panels.h"
#include "kernels/row_packing.h"

namespace baton::cpu {

class SchemeMatrix;

/// What the processor has beside its CpuIsa. It changes no bit of a result.
struct ByteInstructions {
  bool has_vbmi = false;  ///< see scheme_kernels
  bool has_vnni = false;  ///< see int8_kernels
};

/// Packs weights and multiplies by them. A row of the output has the same bits in any company. Thread: engine only.
class SchemeGemm {
 public:
  /// `parallel` is kept by reference and must outlive this object.
  SchemeGemm(const Parallel& parallel, CpuIsa isa, ByteInstructions bytes);

  /// Packs a weight that is not dense for x of `dtype`, f32 or bf16. Values that have no data come from `read`.
  /// Errors: out_of_memory; those of `read`.
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
  void multiply_words(const SchemeMatrix& matrix, const ConstTensorView& x, const TensorView& out);
  void multiply_int8(const SchemeMatrix& matrix, const ConstTensorView& x, const TensorView& out);

  const Parallel& parallel_;
  CpuIsa isa_;
  ByteInstructions bytes_;
  PagePool pages_;
  std::vector<Lane> lanes_;  ///< by thread
  std::vector<std::byte> prepared_x_;
  std::vector<float> x_sums_;
  Int8Rows int8_rows_;
};

}  // namespace baton::cpu
