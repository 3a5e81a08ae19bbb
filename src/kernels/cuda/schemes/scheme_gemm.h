/// Matmuls over weights in 8 and 4 bits, which stay in device memory in the bits of the file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/gemm/cublas_matmul.h"
#include "kernels/cuda/schemes/wide_schedule.h"

namespace baton::cuda {

class SchemeMatrix;
struct SchemeOrder;

/// Packs weights and multiplies by them. On devices of compute capability 9.0 up to 128 rows of 16-bit x are streamed:
/// weights become x's type in registers, exactly. The wide kernel multiplies more rows (scheme_wide.h). Weights with scales of
/// groups are scaled there before they are multiplied, each rounded once to x's type.
///
/// Other devices multiply few rows by a kernel without matrix units. For many rows, and on all devices for many of 4-bit floats,
/// some rows of the weight at a time become dense in scratch memory, each weight rounded once, and cuBLASLt multiplies by them.
/// More than 32 rows of x in 8 bits have a kernel of their own (f8_gemm.h). In batch-invariant mode one kernel
/// multiplies all numbers of rows.
///
/// Weights are packed best in the order in which a step multiplies by them: a matmul of up to 8 rows brings the first bytes of
/// the weight that was packed next into the L2.
///
/// Thread: engine only. All matmuls of one object must be on the device's stream, because they share memory.
class SchemeGemm {
 public:
  /// All arguments are kept by reference and must outlive this object. `scratch`: device memory that other matmuls may use
  /// between calls.
  SchemeGemm(const Device& device, CublasMatmul& cublas, std::span<std::byte> scratch, bool batch_invariant);
  ~SchemeGemm();
  SchemeGemm(const SchemeGemm&) = delete;
  SchemeGemm& operator=(const SchemeGemm&) = delete;

  /// Packs a weight that is not dense for x of `dtype`. Waits for the stream. Errors: out_of_memory, and unsupported for a
  /// shape of which cuBLASLt has no product.
  Result<std::unique_ptr<PackedMatrix>> pack(const StoredMatrix& weight, DType dtype, std::string_view name);

  /// See matmul in kernels/ops.h, for at least one row.
  void multiply(const MatmulArgs& args);

 private:
  enum class Way { stream, wide, general, slabs };
  static constexpr std::array<std::string_view, 4> kWayNames{"stream", "wide", "general", "cublas"};
  Result<void> open();
  Way way_for(const SchemeMatrix& matrix, std::int64_t n_rows, DType out_dtype) const;
  /// Their names, from that for one row of x to that for many.
  std::string kernels_of(const SchemeMatrix& matrix) const;
  void multiply_rows(Way way, const SchemeMatrix& matrix, const MatmulArgs& args);
  void stream(const SchemeMatrix& matrix, const MatmulArgs& args);
  void multiply_wide(const SchemeMatrix& matrix, const MatmulArgs& args);
  void multiply_f8_rows(const SchemeMatrix& matrix, const MatmulArgs& args);
  void multiply_slabs(const SchemeMatrix& matrix, const MatmulArgs& args);

  const Device& device_;
  CublasMatmul& cublas_;
  std::span<std::byte> arranged_;  ///< room for rows of x in another order
  std::span<std::byte> slab_;      ///< room for dense rows of a weight, and for packing
  bool batch_invariant_;
  void* encode_ = nullptr;      ///< the driver's cuTensorMapEncodeTiled; null where nothing is streamed
  WideClusters clusters_ = {};  ///< of the wide kernel
  std::weak_ptr<SchemeOrder> last_packed_;
  std::byte* partials_ = nullptr;  ///< all ones between matmuls; null before the first weight
};

}  // namespace baton::cuda
