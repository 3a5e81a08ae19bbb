/// What the kernels of head_matmul take.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/cuda/device/device.h"

namespace baton::cuda {

struct HeadMatmulParams {
  const void* x;  ///< of the weights' type
  const void* weights;
  void* out;
  std::int64_t x_columns;
  std::int64_t x_stride;
  std::int64_t out_columns;  ///< of all heads
  std::int64_t out_stride;   ///< of a head
  int n_rows;
  int n_heads;
  int n;
  int k;
  bool out_is_f32;
};

/// Blocks hold all of k. Fast for few rows.
void head_matmul_narrow(const Device& device, DType dtype, const HeadMatmulParams& params);
/// Tiles of kWideTile rows of x and of a head's weight.
constexpr int kWideTile = 128;
void head_matmul_wide(const Device& device, DType dtype, const HeadMatmulParams& params);

}  // namespace baton::cuda
