/// Matmuls of recurrent layers in chunks: c [64, N] += a [64, 16] b [16, N] of a warpgroup, with a in registers and b in tiles of
/// shared memory (ChunkTile). By wgmma; before sm_90 by mma.sync, whose fragments are the same.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/wgmma_shared.cuh"
#include "kernels/cuda/states/chunk_tiles.cuh"

namespace baton::cuda {

/// Sixteen columns of operand A, and their parts.
using Fragment = std::uint32_t[4];
using Fragments = Fragment[kOperandParts];

/// The columns 16 to a step of 64 rows of f32, which the warpgroup has as accumulators: left their first 8, right the others.
/// Multiplied by a factor for each of the lane's two rows.
__device__ __forceinline__ void split_fragment(const float (&left)[4], const float (&right)[4], const float (&factor)[2],
                                               Fragments& to) {
  std::uint32_t parts[4][kOperandParts];
  split_pair(left[0] * factor[0], left[1] * factor[0], parts[0]);
  split_pair(left[2] * factor[1], left[3] * factor[1], parts[1]);
  split_pair(right[0] * factor[0], right[1] * factor[0], parts[2]);
  split_pair(right[2] * factor[1], right[3] * factor[1], parts[3]);
#pragma unroll
  for (int part = 0; part < kOperandParts; ++part)
#pragma unroll
    for (int i = 0; i < 4; ++i) to[part][i] = parts[i][part];
}

/// The same of numbers that one f16 holds.
__device__ __forceinline__ void round_fragment(const float (&left)[4], const float (&right)[4], Fragment& to) {
  to[0] = pack_pair<__half>(left[0], left[1]);
  to[1] = pack_pair<__half>(left[2], left[3]);
  to[2] = pack_pair<__half>(right[0], right[1]);
  to[3] = pack_pair<__half>(right[2], right[3]);
}

#ifdef BATON_SM90A

__device__ __forceinline__ void begin_matmuls() { wgmma_fence(); }
__device__ __forceinline__ void end_matmuls() { wgmma_commit(); }
/// All but the last kPending groups between begin and end are done.
template <int kPending>
__device__ __forceinline__ void wait_for_matmuls() {
  wgmma_wait<kPending>();
}

/// b = the transpose of columns 16 step to 16 step + 15 of rows `first_row` and on. c begins at zero unless `accumulate`.
template <int kGroups>
__device__ __forceinline__ void multiply_by_rows(float (&c)[kGroups][4], const Fragment& a, std::uint32_t tile, int first_row,
                                                 int step, bool accumulate) {
  wgmma_registers<__half>(c, a, wgmma_descriptor(tile + first_row * 128 + step * 32, 16, 1024), accumulate);
}
/// b = rows 16 step to 16 step + 15 of two tiles side by side.
__device__ __forceinline__ void multiply_by_columns(float (&c)[16][4], const Fragment& a, std::uint32_t tiles, int step) {
  wgmma_transposed<__half>(c, a, wgmma_descriptor(tiles + step * 16 * 128, sizeof(ChunkTile), 1024));
}

#else

__device__ __forceinline__ void begin_matmuls() {}
__device__ __forceinline__ void end_matmuls() {}
template <int kPending>
__device__ __forceinline__ void wait_for_matmuls() {}

template <int kGroups>
__device__ __forceinline__ void multiply_by_rows(float (&c)[kGroups][4], const Fragment& a, std::uint32_t tile, int first_row,
                                                 int step, bool accumulate) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kGroups; n += 2) {
    const int row = first_row + n * 8 + lane / 16 * 8 + lane % 8;
    std::uint32_t b[4];
    load_matrices(b, tile + swizzled_byte(row, 2 * step + lane / 8 % 2));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!accumulate)
        for (float& x : c[n + half]) x = 0;
      multiply_16x8x16<__half>(c[n + half], a, b[2 * half], b[2 * half + 1]);
    }
  }
}
__device__ __forceinline__ void multiply_by_columns(float (&c)[16][4], const Fragment& a, std::uint32_t tiles, int step) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < 16; n += 2) {
    const int row = step * 16 + lane / 8 % 2 * 8 + lane % 8;
    std::uint32_t b[4];
    load_matrices_transposed(b, tiles + n / 8 * static_cast<int>(sizeof(ChunkTile)) + swizzled_byte(row, n % 8 + lane / 16));
    multiply_16x8x16<__half>(c[n], a, b[0], b[1]);
    multiply_16x8x16<__half>(c[n + 1], a, b[2], b[3]);
  }
}

#endif  // BATON_SM90A

}  // namespace baton::cuda
