/// oneDNN's products, over weights that lie in slices of their columns n. Slices are what the threads of a thread pool
/// share out: oneDNN itself runs on one thread for each, so that no other threads than the thread pool's work
/// (core/parallel.h), and none waits for another inside a product.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/parallel.h"
#include "core/result.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/skinny_gemm.h"

namespace baton::cpu {

/// Keeps oneDNN to the instruction set, before its first use in the process; later calls with another set have no
/// effect, which the result says (false).
bool limit_matmul_isa(CpuIsa isa);

/// Columns [first, first + n) of a weight.
struct WeightSlice {
  std::int64_t first = 0;
  std::int64_t n = 0;
  PanelMatrix panels;  ///< the memory as our own products read it; without data if oneDNN's layout is another
};

/// A weight in the layout oneDNN prefers at 32 rows, slice behind slice.
class SlicedMatrix : public PackedMatrix {
 public:
  SlicedMatrix();
  ~SlicedMatrix() override;
  bool has_panels() const;

  Buffer buffer;
  std::vector<WeightSlice> slices;
  struct Layouts;
  std::unique_ptr<Layouts> layouts;  ///< oneDNN's view of the slices
};

/// Packs and multiplies. Thread: engine only.
class OneDnn {
 public:
  /// Parallel is kept by reference and must outlive this object.
  explicit OneDnn(const Parallel& parallel);
  ~OneDnn();
  OneDnn(const OneDnn&) = delete;
  OneDnn& operator=(const OneDnn&) = delete;

  /// Packs [n, k] for x of `dtype` into `matrix`. Errors name the weight: unsupported where oneDNN has only reference
  /// code, out_of_memory.
  Result<void> pack(ConstTensorView weight, DType dtype, std::string_view name, SlicedMatrix& matrix);

  /// Makes the products of exactly `rows` rows. Errors as above.
  Result<void> make_products(std::int64_t rows, const SlicedMatrix& matrix, DType out_dtype, std::string_view name);

  /// out = x W^T by the products of `rows` rows, which is x's number of rows or more: zeros are multiplied with and
  /// dropped.
  void multiply(std::int64_t rows, const ConstTensorView& x, const SlicedMatrix& matrix, const TensorView& out);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::cpu
