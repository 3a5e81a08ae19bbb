/// GEMM of x in f8_e4m3 by weights in f8_e4m3 on devices of compute capability 9.0.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda.h>

#include "core/tensor.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/f8_rows.h"
#include "kernels/cuda/schemes/scheme_layout.h"
#include "kernels/cuda/schemes/wide_schedule.h"

namespace baton::cuda {

/// Columns between two roundings of a sum: matrix units keep some 14 bits of a sum, so after so many
/// columns it is added to one in f32. A group of weights with a scale has a multiple of them.
inline constexpr int kF8Columns = 128;

/// Whether the kernel multiplies by a weight in f8_e4m3 with groups of 2^group_shift columns, of k columns.
constexpr bool multiplies_f8(std::int64_t k, int group_shift) {
  return k % kF8Block == 0 && (1LL << group_shift) >= kF8Columns;
}

/// Of x, in a box and so in a stage a multiple of.
inline constexpr int kF8BoxRows = 64;
/// Boxes of x that a block multiplies at once.
inline constexpr int kMostF8Boxes = 4;

static_assert(kMostF8Boxes * kF8BoxRows == kF8XRows);

struct F8GemmParams {
  SchemeView weight;
  const float* x_scales = nullptr;  ///< [n_rows]
  const void* bias = nullptr;       ///< [n] of out's type, or null
  void* out = nullptr;              ///< [n_rows, n]
  DType out_dtype = DType::bf16;
  int n_rows = 0;
  bool stores_boxes = false;  ///< out is 16 bits wide, and it and its rows are aligned to 16 bytes
  F8Plan plan;
  // The launch's part.
  int n_stages = 0;  ///< of the ring
  int n_boxes = 0;   ///< of x in a stage
  int n_stages_of_k = 0;
  int n_x_tiles = 0;
  int n_items = 0;  ///< of clusters
};

/// out = x_scales x W^T (+ bias) for x [n_rows, k] in f8_e4m3 with its columns in the order of device/f8_rows.h.
void multiply_f8(const Device& device, const F8GemmParams& params, void* encode_map, const ConstTensorView& x);

}  // namespace baton::cuda
