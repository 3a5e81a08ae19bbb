/// Instructions of matmuls in f8_e4m3, and of clusters of blocks, one function each.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "kernels/cuda/device/mma.cuh"

#ifdef BATON_SM90A

namespace baton::cuda {

/// c [64, 128] (+)= a [64, 32] b [32, 128] in f8_e4m3: a in registers, b a descriptor of 128 rows with their 32 contiguous. Begins
/// at zero unless `accumulate`.
__device__ __forceinline__ void wgmma_f8(float (&c)[16][4], const std::uint32_t (&a)[4], std::uint64_t b, int accumulate) {
#define BATON_C(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %69, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,"
      "%62,%63}, {%64,%65,%66,%67}, %68, p, 1, 1;\n\t}"
      : BATON_C(0), BATON_C(1), BATON_C(2), BATON_C(3), BATON_C(4), BATON_C(5), BATON_C(6), BATON_C(7), BATON_C(8), BATON_C(9),
        BATON_C(10), BATON_C(11), BATON_C(12), BATON_C(13), BATON_C(14), BATON_C(15)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
#undef BATON_C
}

/// The block's number in its cluster.
__device__ __forceinline__ std::uint32_t rank_in_cluster() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// Waits for all threads of the cluster.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// Arrives at the same barrier of a block of the cluster. What this thread wrote need not be seen there: a release for the
/// cluster would be a fence of the whole device.
__device__ __forceinline__ void barrier_arrive_at(std::uint32_t barrier, std::uint32_t rank) {
  asm volatile(
      "{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %0, %1;\n\t"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
/// Arrives at barrier `id` of so many threads without waiting.
__device__ __forceinline__ void named_barrier_arrive(int id, int n_threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}
/// Copies adjacent bytes, a multiple of 16 from and to multiples of 16.
__device__ __forceinline__ void copy_bytes(std::uint32_t to, const void* from, int n_bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(n_bytes), "r"(barrier)
               : "memory");
}
/// Copies the map's box to the same place in the blocks of `ranks` (bits), whose barriers count the bytes.
__device__ __forceinline__ void copy_box_to_all(std::uint32_t to, const CUtensorMap* map, int column, int row,
                                                std::uint32_t barrier, std::uint16_t ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], "
      "[%4], %5;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(ranks)
      : "memory");
}

}  // namespace baton::cuda

#endif  // BATON_SM90A
