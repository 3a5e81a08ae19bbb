/// GEMM over weights of 8 and 4 bits for many rows of x, on devices of compute capability 9.0.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "core/dtype.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/schemes/scheme_layout.h"
#include "kernels/cuda/schemes/wide_schedule.h"

namespace baton::cuda {

struct SchemeWideParams {
  SchemeView weight;
  const void* bias = nullptr;  ///< [n] of out's type, or null
  void* out = nullptr;         ///< [n_rows, n]
  WideClusters clusters = {};
  int n_rows = 0;
  bool out_is_f32 = false;      ///< or of x's type
  bool stores_vectors = false;  ///< 16 bytes of out at once
  // The launch's part.
  WidePlan plan;
  int n_row_tiles = 0;  ///< of 128 rows
  int n_passes = 1;     ///< of `width` rows of x
  int k_stages = 0;     ///< of a tile
  int n_stages = 0;     ///< of the ring
  int scale_bytes = 0;  ///< of a scale in a stage; 0: none
  int zero_bytes = 0;   ///< 1 if the stage has zeros
  int groups_of_stage = 1;
};

/// out = x W^T (+ bias), `width` rows at once, for x in `dtype` (bf16 or f16), which x_map describes in boxes of `width` rows.
/// Scales of groups multiply the weights, which are rounded once to x's type; scales of rows multiply the sums.
/// `params` needs the device's clusters.
void wide_f8(const Device& device, DType dtype, int width, const SchemeWideParams& params, const CUtensorMap& x_map);
void wide_i8(const Device& device, DType dtype, int width, const SchemeWideParams& params, const CUtensorMap& x_map);
void wide_i4(const Device& device, DType dtype, int width, const SchemeWideParams& params, const CUtensorMap& x_map);

/// The clusters of these kernels that run at once.
WideClusters wide_clusters(const Device& device);

}  // namespace baton::cuda
