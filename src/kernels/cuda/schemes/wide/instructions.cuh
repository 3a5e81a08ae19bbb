/// Instructions that only the wide GEMM needs: clusters, stores, and weights scaled in f32.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_fp16.h>

#include "kernels/cuda/device/mma.cuh"

#ifdef BATON_SM90A

namespace baton::cuda {

/// Four 8 x 8 matrices of 16-bit elements are stored transposed; lane i passes the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void store_matrices_transposed(std::uint32_t address, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}

/// The value, in a way that hides it: what is computed from it is computed here, not before a loop.
__device__ __forceinline__ int as_unknown(int value) {
  asm volatile("" : "+r"(value));
  return value;
}
/// Waits for all threads of the cluster's blocks that have not ended.
__device__ __forceinline__ void cluster_barrier_without_memory() {
  asm volatile("barrier.cluster.arrive.relaxed;\n\tbarrier.cluster.wait;" ::: "memory");
}
/// The same; what threads wrote to shared memory before is then visible to the others.
__device__ __forceinline__ void cluster_barrier_with_memory() {
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
/// What the cluster's block `rank` has where this block has `at`.
__device__ __forceinline__ uint4 load_of_block(std::uint32_t at, int rank) {
  uint4 x;
  asm volatile(
      "{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %4, %5;\n\t"
      "ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [there];\n\t}"
      : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
      : "r"(at), "r"(rank)
      : "memory");
  return x;
}
/// 16 bytes at once.
__device__ __forceinline__ void store_global(void* at, const uint4& x) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
/// A pair of T times an f32, rounded once.
template <class T>
__device__ __forceinline__ std::uint32_t times_f32(std::uint32_t pair, float factor) {
  if constexpr (std::is_same_v<T, __half>) {
    const float2 both = __half22float2(*reinterpret_cast<const __half2*>(&pair));
    return pack_pair<T>(both.x * factor, both.y * factor);
  } else {
    return pack_pair<T>(__uint_as_float(pair << 16) * factor, __uint_as_float(pair & 0xffff0000u) * factor);
  }
}

}  // namespace baton::cuda

#endif  // BATON_SM90A
