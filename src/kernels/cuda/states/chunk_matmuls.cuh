/// Tiles of recurrent layers in chunks, rows of keys in shared memory and numbers as sums of two of f16, and their matmuls: c [64, N] +=
/// a [64, 16] b [16, N] of a warpgroup, with a in registers and b in tiles of shared memory (ChunkTile). By wgmma on sm_90a, else by
/// mma.sync, whose fragments are the same.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/wgmma_shared.cuh"
#include "kernels/cuda/states/chunk_scan.h"

namespace baton::cuda {

/// Bytes from one row of keys or queries to the next in shared memory: 16 more than they have, so that matrix loads have no bank
/// conflicts.
inline constexpr int kKeyRowBytes = kChunkKeyDim * 2 + 16;
inline constexpr int kKeyTileBytes = kStateChunk * kKeyRowBytes;

/// Copies 16 bytes, or fills them with zeros.
__device__ __forceinline__ void copy_16_or_zeros(std::uint32_t to, const void* from, bool copies) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(copies ? 16 : 0) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_for_copy_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Begins to copy rows of key_dim numbers, `stride` numbers apart; rows from n_rows on become 0.
template <int kThreads>
__device__ __forceinline__ void copy_key_rows(std::uint32_t to, const __nv_bfloat16* from, std::int64_t stride, int n_rows) {
  constexpr int kPieces = kChunkKeyDim * 2 / 16;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kStateChunk * kPieces; i += kThreads) {
    const int row = i / kPieces;
    const int piece = i % kPieces;
    copy_16_or_zeros(to + row * kKeyRowBytes + piece * 16, from + (row < n_rows ? row : 0) * stride + piece * 8, row < n_rows);
  }
}

/// Address that a lane passes to a matrix load for the 16 x 16 tile at `tile`: the left half's two matrices first, or the upper
/// half's.
__device__ __forceinline__ std::uint32_t left_first(std::uint32_t tile, int row_bytes) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return tile + lane % 16 * row_bytes + lane / 16 * 16;
}
__device__ __forceinline__ std::uint32_t upper_first(std::uint32_t tile, int row_bytes) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return tile + (lane % 8 + lane / 16 * 8) * row_bytes + lane / 8 % 2 * 16;
}

/// Two neighbours as pairs of f16: x = parts[0] + parts[1].
__device__ __forceinline__ void split_pair(float x, float y, std::uint32_t (&parts)[kOperandParts]) {
  parts[0] = pack_pair<__half>(x, y);
  const float2 upper = __half22float2(*reinterpret_cast<const __half2*>(&parts[0]));
  parts[1] = pack_pair<__half>(x - upper.x, y - upper.y);
}

/// The largest power of two that is not above a positive x.
__device__ __forceinline__ float power_below(float x) { return __uint_as_float(__float_as_uint(x) & 0x7f800000u); }

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

class ByWgmma {
 public:
  static constexpr bool kCopiesInBulk = true;  ///< operands, as such devices can
#ifdef BATON_SM90A
  static constexpr bool kRuns = true;  ///< code for this device can be compiled
  /// An address in shared memory, through which loads do not move before this point.
  static __device__ __forceinline__ std::uint32_t current(std::uint32_t address) { return address; }
  static __device__ __forceinline__ void begin() { wgmma_fence(); }
  static __device__ __forceinline__ void end() { wgmma_commit(); }
  /// All but the last kPending groups between begin and end are done.
  template <int kPending>
  static __device__ __forceinline__ void wait() {
    wgmma_wait<kPending>();
  }
  /// b = the transpose of columns 16 step to 16 step + 15 of the tile's rows. c begins at zero unless `accumulate`.
  static __device__ __forceinline__ void by_rows(float (&c)[8][4], const Fragment& a, std::uint32_t tile, int step,
                                                 bool accumulate) {
    wgmma_registers<__half>(c, a, wgmma_descriptor(tile + step * 32, 16, 1024), accumulate);
  }
  /// b = rows 16 step to 16 step + 15 of two tiles side by side.
  static __device__ __forceinline__ void by_columns(float (&c)[16][4], const Fragment& a, std::uint32_t tiles, int step) {
    wgmma_transposed<__half>(c, a, wgmma_descriptor(tiles + step * 16 * 128, sizeof(ChunkTile), 1024));
  }
#else
  static constexpr bool kRuns = false;
#endif
};

/// The same, at once.
class ByMma {
 public:
  static constexpr bool kCopiesInBulk = false;
  static constexpr bool kRuns = true;
  static __device__ __forceinline__ std::uint32_t current(std::uint32_t address) { return as_of_now(address); }
  static __device__ __forceinline__ void begin() {}
  static __device__ __forceinline__ void end() {}
  template <int kPending>
  static __device__ __forceinline__ void wait() {}
  static __device__ __forceinline__ void by_rows(float (&c)[8][4], const Fragment& a, std::uint32_t tile, int step,
                                                 bool accumulate) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      const int row = n * 8 + lane / 16 * 8 + lane % 8;
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
  static __device__ __forceinline__ void by_columns(float (&c)[16][4], const Fragment& a, std::uint32_t tiles, int step) {
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
};

}  // namespace baton::cuda
