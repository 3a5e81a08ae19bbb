/// Streaming GEMM over weights of 8 and 4 bits on devices of compute capability 9.0.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "core/dtype.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/gemm/stream_layout.h"
#include "kernels/cuda/schemes/scheme_layout.h"

namespace baton::cuda {

/// Rows of x that a kernel multiplies at once; fewer are padded.
inline constexpr int kSchemeWidths[] = {8, 16, 32, 64, 128};
inline constexpr int kMostSchemeWidth = 128;

/// Bytes of partial sums on a device: the widest kernel's, two tiles of each multiprocessor.
constexpr std::size_t scheme_partial_bytes(int n_multiprocessors) {
  return static_cast<std::size_t>(n_multiprocessors) * 2 * kSchemeTileRows * kMostSchemeWidth * sizeof(float);
}

struct SchemeStreamParams {
  SchemeView weight;
  const void* bias = nullptr;  ///< [n] of out's type, or null
  void* out = nullptr;         ///< [n_rows, n]
  uint4* partials = nullptr;   ///< [n_blocks, width / 8, threads of a set], all kNotWritten between kernels
  int n_rows = 0;
  bool out_is_f32 = false;  ///< or of x's type
  bool stores_pairs = false;
  const std::byte* next_values = nullptr;  ///< of the weight of the matmul that comes next, as far as known
  std::int64_t next_bytes = 0;             ///< of them
  // The launch's part.
  StreamSchedule schedule = {};
  int n_passes = 1;         ///< of `width` rows of x, one after the other for each tile
  int n_stages = 0;         ///< of the ring
  int scale_bytes = 0;      ///< of a scale in a stage; 0: none
  int zero_bytes = 0;       ///< 1 if the stage has zeros, or scales of f4
  int groups_of_stage = 1;  ///< whose scales and zeros are in the stage
  int unit_shift = 0;       ///< sums are scaled after 2^unit_shift units of columns
};

/// Whether groups of so many columns (2^shift) are streamed.
constexpr bool streams_groups(WeightScheme scheme, int group_shift) {
  return group_shift >= (scheme == WeightScheme::f4 ? 4 : 5);
}

/// out = x W^T (+ bias), `width` rows at once, for x in `dtype` (bf16 or f16), which x_map describes in boxes of `width` rows.
void stream_f8(const Device& device, DType dtype, int width, const SchemeStreamParams& params, const CUtensorMap& x_map);
void stream_i8(const Device& device, DType dtype, int width, const SchemeStreamParams& params, const CUtensorMap& x_map);
void stream_i4(const Device& device, DType dtype, int width, const SchemeStreamParams& params, const CUtensorMap& x_map);
void stream_f4(const Device& device, DType dtype, int width, const SchemeStreamParams& params, const CUtensorMap& x_map);

}  // namespace baton::cuda
