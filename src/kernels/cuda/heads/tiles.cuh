/// Tiles of 16-bit rows in shared memory for mma.sync: panels of 64 columns, each row's chunks of 16 bytes permuted by the row's
/// number, so that neither copies nor loads of matrices have bank conflicts.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/heads/kernel.h"

namespace baton::cuda {

constexpr int kPanelK = 64;
constexpr int kPanelChunks = kPanelK / 8;
constexpr int kPanelRowBytes = kPanelK * 2;

/// Offset of a chunk of eight columns inside a panel.
__device__ __forceinline__ int panel_place(int row, int chunk) { return row * kPanelRowBytes + ((chunk ^ (row & 7)) << 4); }

/// Copies 16 bytes, or writes zeros.
__device__ __forceinline__ void copy_16_or_zeros(std::uint32_t to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_for_copy_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Copies columns [first_column, + 64) of kRows rows from `first_row` on to a panel; columns from n_columns on become zeros, and
/// rows from n_rows on copies of the last.
template <int kRows, int kThreads, class T>
__device__ __forceinline__ void copy_panel(std::uint32_t panel, const T* from, std::int64_t row_elements, int first_row,
                                           int n_rows, int first_column, int n_columns) {
#pragma unroll
  for (int i = 0; i < kRows * kPanelChunks / kThreads; ++i) {
    const int index = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = index / kPanelChunks;
    const int chunk = index % kPanelChunks;
    const int column = first_column + chunk * 8;
    const bool exists = column < n_columns;
    const T* const at = from + min(first_row + row, n_rows - 1) * row_elements + (exists ? column : 0);
    copy_16_or_zeros(panel + panel_place(row, chunk), at, exists);
  }
}

/// Rows [row, + 16) and columns [16 step, + 16) of a panel as operand A.
__device__ __forceinline__ void load_a(std::uint32_t (&a)[4], std::uint32_t panel, int row, int step) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  load_matrices(a, panel + panel_place(row + lane % 16, step * 2 + lane / 16));
}

template <class T>
__device__ __forceinline__ void store_pair(const HeadMatmulParams& p, std::int64_t at, float low, float high) {
  if (p.out_is_f32)
    *reinterpret_cast<float2*>(static_cast<float*>(p.out) + at) = make_float2(low, high);
  else
    *reinterpret_cast<std::uint32_t*>(static_cast<T*>(p.out) + at) = pack_pair<T>(low, high);
}

}  // namespace baton::cuda
