/// The kernels of grouped matmuls with matrix units, one file each; grouped_matmul.cu chooses between them.
#pragma once

#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// Whether the kernels with matrix units take these tensors: x and weights bf16 or f16, out of x's dtype or f32, k a
/// multiple of `k_step`, whole pairs of columns, aligned memory, fewer than 2^31 elements in x and in an expert.
bool fits_matrix_units(const GroupedMatmulArgs& args, const std::byte* weight, std::int64_t k_step);

/// Few places per expert: the weights are read from memory once and go straight to the matrix units. k % 32 == 0.
inline constexpr std::int64_t kGroupedSkinnyStep = 32;
void grouped_skinny(const Device& device, const GroupedMatmulArgs& args, const std::byte* weight);

/// Many places per expert: tiles of x and weights in shared memory. k % 64 == 0.
inline constexpr std::int64_t kGroupedTilesStep = 64;
void grouped_tiles(const Device& device, const GroupedMatmulArgs& args, const std::byte* weight);

}  // namespace baton::cuda
