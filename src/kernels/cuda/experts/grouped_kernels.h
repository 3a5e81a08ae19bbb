/// The kernels of grouped matmuls, one file each; grouped_matmul.cu chooses between them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// Whether the kernels with matrix units take these tensors, with dense experts: x and weights bf16 or f16, out of x's dtype or f32, k a
/// multiple of `k_step`, whole pairs of columns, aligned memory, fewer than 2^31 elements in x and in an expert.
bool fits_matrix_units(const GroupedMatmulArgs& args, const std::byte* weight, std::int64_t k_step);

/// Few places per expert: the weights are read from memory once and go straight to the matrix units. k % 32 == 0.
inline constexpr std::int64_t kGroupedSkinnyStep = 32;
void grouped_skinny(const Device& device, const GroupedMatmulArgs& args, const std::byte* weight);

/// Many places per expert: tiles of x and weights in shared memory. k % 64 == 0.
inline constexpr std::int64_t kGroupedTilesStep = 64;
void grouped_tiles(const Device& device, const GroupedMatmulArgs& args, const std::byte* weight);

/// Whether the kernels with matrix units take this matmul by weights in 8 and 4 bits: x bf16 or f16, k a multiple of 8,
/// aligned memory, groups of a multiple of 32 columns (of f4: of 8) in the order of x.
bool fits_scheme_units(const GroupedMatmulArgs& args);

/// By weights in 8 and 4 bits, into any float dtype. For few places per expert, of which units have 8:
void grouped_scheme_skinny(const Device& device, const GroupedMatmulArgs& args);
/// for many, of which units have `n_places`, 32 or 64:
void grouped_scheme_tiles(const Device& device, const GroupedMatmulArgs& args, int n_places);
/// and for all that fits_scheme_units does not take, without matrix units.
void grouped_scheme_general(const Device& device, const GroupedMatmulArgs& args);

/// Few places per expert, by dense weights or others, on compute capability 9.0: weights pass through rings in shared memory. x bf16
/// or f16, k a multiple of 8, aligned memory. Of weights that are not dense what fits_scheme_units takes, and only many units: a warp
/// widens the stages of a unit one after the other, and of few units memory would wait for that.
bool fits_stream_units(const Device& device, const GroupedMatmulArgs& args);
void grouped_stream(const Device& device, const GroupedMatmulArgs& args);

/// The number of blocks that can run at once, so that all units of the grid begin together.
template <class Kernel>
unsigned resident_blocks(const Device& device, Kernel* kernel, int n_threads) {
  int n_blocks = 0;
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n_blocks, kernel, n_threads, 0), "grouped_matmul");
  return static_cast<unsigned>(std::max(1, n_blocks) * device.n_multiprocessors);
}

}  // namespace baton::cuda
