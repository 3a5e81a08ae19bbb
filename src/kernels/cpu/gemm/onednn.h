/// Matmuls by oneDNN, over weights that are cut into slices of their columns n. The threads of the thread pool share
/// the slices. oneDNN itself uses one thread for each slice, so it starts no threads beside the thread pool
/// (core/parallel.h), and no thread waits for another inside a matmul.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/parallel.h"
#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/cpu/gemm/skinny_gemm.h"
#include "kernels/cpu/isa.h"

namespace baton::cpu {

/// Limits oneDNN to the instruction set. Must be called before oneDNN is first used in the process. Returns false if
/// an earlier call set another limit, which then stays.
bool limit_matmul_isa(CpuIsa isa);

/// Columns [first, first + n) of a weight.
struct WeightSlice {
  std::int64_t first = 0;
  std::int64_t n = 0;
  PanelMatrix panels;  ///< the memory as our GEMMs read it; without data if it is not a panel layout
};

/// A weight in the layout that oneDNN prefers for 32 rows, one slice after the other.
class SlicedMatrix : public PackedMatrix {
 public:
  SlicedMatrix();
  ~SlicedMatrix() override;
  bool has_panels() const;

  Buffer buffer;
  std::vector<WeightSlice> slices;
  struct Layouts;
  std::unique_ptr<Layouts> layouts;  ///< the slices as oneDNN describes them
};

/// Packs weights and multiplies by them. Thread: engine only.
class OneDnn {
 public:
  /// `parallel` is kept by reference and must outlive this object.
  explicit OneDnn(const Parallel& parallel);
  ~OneDnn();
  OneDnn(const OneDnn&) = delete;
  OneDnn& operator=(const OneDnn&) = delete;

  /// Packs [n, k] for x of `dtype` into `matrix`. Errors name the weight: unsupported (oneDNN has only reference
  /// code), out_of_memory.
  Result<void> pack(ConstTensorView weight, DType dtype, std::string_view name, SlicedMatrix& matrix);

  /// Prepares matmuls of exactly `rows` rows. Errors as for pack.
  Result<void> make_matmuls(std::int64_t rows, const SlicedMatrix& matrix, DType out_dtype, std::string_view name);

  /// out = x W^T, with matmuls prepared for `rows` rows. x may have fewer rows: zeros are added and their results
  /// dropped.
  void multiply(std::int64_t rows, const ConstTensorView& x, const SlicedMatrix& matrix, const TensorView& out);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::cpu
