/// Instructions of matmuls in f8_e4m3, of their copies, and of clusters of blocks, one function each.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "kernels/cuda/device/mma.cuh"

#ifdef BATON_SM90A

namespace baton::cuda {

/// c [64, N] (+)= a [64, 32] b [32, N] in f8_e4m3, N = 64 or 128 by the size of c. a and b are descriptors of rows with their 32
/// contiguous. Begins at zero unless `accumulate`.
#define BATON_C(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define BATON_C_8 BATON_C(0), BATON_C(1), BATON_C(2), BATON_C(3), BATON_C(4), BATON_C(5), BATON_C(6), BATON_C(7)
#define BATON_SUMS_8                                                                                                   \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
  "%31"
__device__ __forceinline__ void wgmma_f8(float (&c)[8][4], std::uint64_t a, std::uint64_t b, int accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {" BATON_SUMS_8 "}, %32, %33, p, 1, 1;\n\t}"
      : BATON_C_8
      : "l"(a), "l"(b), "r"(accumulate));
}
__device__ __forceinline__ void wgmma_f8(float (&c)[16][4], std::uint64_t a, std::uint64_t b, int accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" BATON_SUMS_8
      ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%"
      "61,"
      "%62,%63}, %64, %65, p, 1, 1;\n\t}"
      : BATON_C_8, BATON_C(8), BATON_C(9), BATON_C(10), BATON_C(11), BATON_C(12), BATON_C(13), BATON_C(14), BATON_C(15)
      : "l"(a), "l"(b), "r"(accumulate));
}
#undef BATON_SUMS_8
#undef BATON_C_8
#undef BATON_C
/// Descriptor of rows of 64 bytes, swizzled in units of 16, eight of them 512 bytes.
__device__ __forceinline__ std::uint64_t wgmma_descriptor_of_64_bytes(std::uint32_t address) {
  return (std::uint64_t{2} << 62) | (std::uint64_t{512 >> 4} << 32) | (std::uint64_t{1} << 16) | ((address & 0x3ffffu) >> 4);
}

/// The block's number in its cluster.
__device__ __forceinline__ std::uint32_t rank_in_cluster() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// Waits for all threads of the cluster. What they wrote to shared memory before is then visible to the others.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// What the cluster's block `rank` has where this block has `at`.
__device__ __forceinline__ uint4 load_at(std::uint32_t at, int rank) {
  uint4 x;
  asm volatile(
      "{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %4, %5;\n\t"
      "ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [there];\n\t}"
      : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
      : "r"(at), "r"(rank)
      : "memory");
  return x;
}
/// Where the cluster's block `rank` has what this block has `at`.
__device__ __forceinline__ std::uint32_t address_at(std::uint32_t at, int rank) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
  return there;
}
/// Arrives at a barrier of a block of the cluster. What this thread wrote need not be seen there: a release for the cluster would be
/// a fence of the whole device.
__device__ __forceinline__ void barrier_arrive_there(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
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

/// Copies 4 bytes; wait_for_copies of mma.cuh waits for them.
__device__ __forceinline__ void copy_4(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
/// Four 8 x 8 matrices of 16-bit elements are stored transposed; lane i passes the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void store_transposed(std::uint32_t address, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}
/// Copies the map's box from shared memory. Elements outside the matrix are not written.
__device__ __forceinline__ void give_box(const CUtensorMap* map, int column, int row, std::uint32_t from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(column), "r"(row),
               "r"(from)
               : "memory");
}
__device__ __forceinline__ void commit_boxes() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until this thread's boxes have been read.
__device__ __forceinline__ void wait_for_boxes() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
/// Makes what this thread wrote to shared memory visible to copies.
__device__ __forceinline__ void show_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace baton::cuda

#endif  // BATON_SM90A
