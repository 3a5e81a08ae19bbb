/// Copies by the tensor memory accelerator: one thread copies a box of a matrix to shared memory, and a barrier counts
/// the bytes that arrive. One function each instruction; the barriers are those of mma.cuh.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "kernels/cuda/device/mma.cuh"

#ifdef BATON_SM90A

namespace baton::cuda {

/// Arrives at the barrier; its phase ends only when `n_bytes` have been copied as well.
__device__ __forceinline__ void barrier_expect(std::uint32_t barrier, int n_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(n_bytes) : "memory");
}
/// Makes barriers that this thread initialised visible to copies.
__device__ __forceinline__ void show_barriers_to_copies() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/// Copies the map's box at this column and row. Elements outside the matrix become 0 and count as bytes.
__device__ __forceinline__ void copy_box(std::uint32_t to, const CUtensorMap* map, int column, int row, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
/// The L2's policy for data that are read once.
__device__ __forceinline__ std::uint64_t read_once_policy() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void copy_box(std::uint32_t to, const CUtensorMap* map, int column, int row, std::uint32_t barrier,
                                         std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3}], [%4], "
      "%5;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(policy)
      : "memory");
}

/// Copies adjacent bytes, a multiple of 16 from and to multiples of 16.
__device__ __forceinline__ void copy_bytes(std::uint32_t to, const void* from, int n_bytes, std::uint32_t barrier,
                                           std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(n_bytes), "r"(barrier), "l"(policy)
      : "memory");
}

}  // namespace baton::cuda

#endif  // BATON_SM90A
