/// Matmuls by integers of 8 and 4 bits with x rounded to 8 bits: sums of integers are exact, and a weight is read once in the
/// bits that the file has.
///
/// A row of x is rounded by itself: to q = round(x / s), with s = max |x| / 127 over a block of at most
/// kMostBlockColumns columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/parallel.h"
#include "core/tensor.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/schemes/panels.h"

namespace baton::cpu {

/// Most columns that are summed as integers.
inline constexpr std::int64_t kMostBlockColumns = 128;

/// The columns of a block, for weights of k columns of which `group` share a scale: no block has two scales of a weight.
std::int64_t int8_block_columns(std::int64_t k, std::int64_t group);

/// Rows of x in 8 bits.
struct Int8Rows {
  std::int64_t row_bytes = 0;  ///< a multiple of a word's; the rest is 0
  std::int64_t n_blocks = 0;
  std::vector<std::int8_t> values;  ///< [rows, row_bytes]
  std::vector<float> scales;        ///< [rows, n_blocks]
  std::vector<std::int32_t> sums;   ///< [rows, n_blocks]: of the values of a block
};

/// Rounds x [rows, k] float to `rows`, whose memory is used again. A block that holds NaN or infinity has a scale of NaN or
/// infinity.
void round_to_int8(const Parallel& parallel, const ConstTensorView& x, std::int64_t block_columns, Int8Rows& rows);

/// What a kernel multiplies: one panel and any number of rows.
///
///     sums[r, c] += over blocks b: (sum over b of value * x - zero[g, c] * x_sums[r, b]) * (x_scales[r, b] * scale[g, c])
///
/// for the group g that b is in, blocks in order.
struct Int8Task {
  const std::byte* values = nullptr;  ///< n_steps packed steps
  std::int64_t n_steps = 0;
  std::int64_t block_steps = 0;  ///< the last block may have fewer
  std::int64_t blocks_a_group = 0;
  const std::byte* scales = nullptr;  ///< [groups, kPanelColumns] of scale_dtype
  DType scale_dtype = DType::f32;
  const std::uint8_t* zeros = nullptr;  ///< [groups, kPanelColumns], or null: middle
  std::int32_t middle = 0;              ///< the value that stands for 0: 8 or 128
  const std::int8_t* x = nullptr;       ///< rows of n_steps words, x_stride bytes apart
  std::int64_t x_stride = 0;
  std::int64_t n_rows = 0;
  std::int64_t n_blocks = 0;
  const float* x_scales = nullptr;       ///< [n_rows, n_blocks]
  const std::int32_t* x_sums = nullptr;  ///< [n_rows, n_blocks]
  float* sums = nullptr;                 ///< [n_rows, kPanelColumns]
};

/// Kernels of one instruction set.
struct Int8Kernels {
  const char* name = nullptr;
  void (*i8)(const Int8Task& task) = nullptr;
  void (*i4)(const Int8Task& task) = nullptr;
};

extern const Int8Kernels kInt8Baseline, kInt8Avx2, kInt8Vnni;

/// Whether this processor multiplies and adds four bytes of a lane at once (AVX-512 VNNI).
bool has_vnni();

const Int8Kernels& int8_kernels(CpuIsa isa, bool has_vnni);

}  // namespace baton::cpu
