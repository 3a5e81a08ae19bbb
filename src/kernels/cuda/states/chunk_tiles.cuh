/// Tiles of recurrent layers in chunks: rows of keys in shared memory, and numbers as sums of two of f16.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/mma.cuh"
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

}  // namespace baton::cuda
