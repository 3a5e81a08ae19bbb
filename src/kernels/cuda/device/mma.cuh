/// Instructions of the matrix units and of asynchronous copies, one function each. Fragment layouts are those of the
/// PTX manual for mma.m16n8k16 and wgmma.m64nNk16; the accumulators and the register operand A of both have the same
/// layout.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define BATON_SM90A 1  // wgmma and setmaxnreg are available; otherwise the same kernel uses mma.sync
#endif

namespace baton::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// --- barriers in shared memory (mbarrier) ---

__device__ __forceinline__ void barrier_init(std::uint32_t barrier, int n_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(n_arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint32_t barrier) {
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared::cta.b64 state, [%0];\n\t}" ::"r"(barrier) : "memory");
}
/// Whether the phase of this parity has ended, without waiting.
__device__ __forceinline__ bool barrier_has_ended(std::uint32_t barrier, int parity) {
  std::uint32_t done = 0;
  asm volatile("{\n\t.reg .pred p;\n\tmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
               : "=r"(done)
               : "r"(barrier), "r"(parity)
               : "memory");
  return done != 0;
}
/// Waits until the phase of this parity has ended.
__device__ __forceinline__ void barrier_wait(std::uint32_t barrier, int parity) {
#ifdef BATON_SM90A
  std::uint32_t done = 0;
  do {
    asm volatile("{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, 0, p;\n\t}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  } while (done == 0);
#else
  while (!barrier_has_ended(barrier, parity)) {
  }
#endif
}

// --- copies from global to shared memory ---

/// Copies 16 bytes, bypassing the L1.
__device__ __forceinline__ void copy_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ uint4 load_shared(std::uint32_t at) {
  uint4 x;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "r"(at) : "memory");
  return x;
}
__device__ __forceinline__ void store_shared(std::uint32_t at, uint4 x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
/// Makes this thread arrive at the barrier when all its copies so far have completed.
__device__ __forceinline__ void arrive_with_copies(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
/// Waits for all copies of this thread; call it before the thread ends.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// --- matrix fragments ---

/// Returns `address` so that loads through it cannot be moved before this point. Matrix loads are not volatile, so
/// that the compiler may reorder and overlap them; addresses that pass through here keep them after a barrier.
__device__ __forceinline__ std::uint32_t as_of_now(std::uint32_t address) {
  asm volatile("" : "+r"(address)::"memory");
  return address;
}

/// Four 8 x 8 matrices of 16-bit elements; lane i passes the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], std::uint32_t address) {
  asm("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(address));
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t address) {
  asm("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
      : "r"(address));
}

/// The transpose of an 8 x 8 matrix of 16-bit elements, a row's pairs in four lanes.
__device__ __forceinline__ std::uint32_t transpose_8x8(std::uint32_t pair) {
  std::uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

/// c += a b for 16 x 16 times 16 x 8.
template <class T>
__device__ __forceinline__ void multiply_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                                 std::uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Two floats as a pair of 16-bit numbers, the first in the low half, rounded to nearest even.
template <class T>
__device__ __forceinline__ std::uint32_t pack_pair(float low, float high) {
  std::uint32_t pair;
  if constexpr (std::is_same_v<T, __half>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Waits for the first `n_threads` threads that name barrier `id` (1 to 15).
__device__ __forceinline__ void named_barrier(int id, int n_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

/// Keeps matmuls on their side of this point: matmuls that produce these accumulators, and the loads that feed them,
/// are done before it; matmuls that use them begin after it. Asynchronous matmuls need it. So do ordinary ones, before
/// the shared memory that they read is reused.
template <int n>
__device__ __forceinline__ void own_accumulators(float (&c)[n][4]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])::"memory");
}

/// Changes the number of registers of each thread of a warpgroup; one warpgroup may take what another gives up.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
#ifdef BATON_SM90A
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
#ifdef BATON_SM90A
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

#ifdef BATON_SM90A

// --- wgmma: matmuls of a warpgroup (four warps), A in registers, B in shared memory ---

/// Makes data visible to wgmma that other threads copied to shared memory before a barrier.
__device__ __forceinline__ void wgmma_see_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Descriptor of a matrix in 128-byte swizzled rows: address, byte strides between repetitions along the leading and
/// the other axis.
__device__ __forceinline__ std::uint64_t wgmma_descriptor(std::uint32_t address, int leading_bytes, int stride_bytes) {
  return (std::uint64_t{1} << 62) | (static_cast<std::uint64_t>(stride_bytes >> 4) << 32) |
         (static_cast<std::uint64_t>(leading_bytes >> 4) << 16) | ((address & 0x3ffffu) >> 4);
}

// The sums of 64 and of 128 columns, as operands of the instruction and as its outputs.
#define BATON_SUMS_8                                                                                                    \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30," \
  "%31"
#define BATON_SUMS_16                                                                                                 \
  BATON_SUMS_8                                                                                                        \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59," \
  "%60,%61,%62,%63"
#define BATON_C(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define BATON_C_8 BATON_C(0), BATON_C(1), BATON_C(2), BATON_C(3), BATON_C(4), BATON_C(5), BATON_C(6), BATON_C(7)
#define BATON_C_16 \
  BATON_C_8, BATON_C(8), BATON_C(9), BATON_C(10), BATON_C(11), BATON_C(12), BATON_C(13), BATON_C(14), BATON_C(15)
#define BATON_WGMMA_OF(type, groups, columns, b_is_transposed, a_and_b_places, accumulate_place)            \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " accumulate_place                                     \
               ", 0;\n\t"                                                                                   \
               "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " " BATON_SUMS_##groups \
               "}, " a_and_b_places ", p, 1, 1, " b_is_transposed ";\n\t}"                                  \
               : BATON_C_##groups                                                                           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))
#define BATON_WGMMA(...)                   \
  if constexpr (std::is_same_v<T, __half>) \
    BATON_WGMMA_OF("f16", __VA_ARGS__);    \
  else                                     \
    BATON_WGMMA_OF("bf16", __VA_ARGS__)

/// c (+)= a b for 64 x 16 times 16 x 64, B with its 16 contiguous (K-major).
template <class T>
__device__ __forceinline__ void wgmma_64x64x16(float (&c)[8][4], const std::uint32_t (&a)[4], std::uint64_t b, int accumulate) {
  BATON_WGMMA(8, "64", "0", "{%32,%33,%34,%35}, %36", "%37");
}

/// c += a b for 64 x 16 times 16 x N (N = 64 or 128 by the size of c), B with its N contiguous (MN-major).
template <class T>
__device__ __forceinline__ void wgmma_transposed(float (&c)[8][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  constexpr int accumulate = 1;
  BATON_WGMMA(8, "64", "1", "{%32,%33,%34,%35}, %36", "%37");
}
template <class T>
__device__ __forceinline__ void wgmma_transposed(float (&c)[16][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  constexpr int accumulate = 1;
  BATON_WGMMA(16, "128", "1", "{%64,%65,%66,%67}, %68", "%69");
}
#undef BATON_WGMMA
#undef BATON_WGMMA_OF
#undef BATON_C_16
#undef BATON_C_8
#undef BATON_C
#undef BATON_SUMS_16
#undef BATON_SUMS_8

#endif  // BATON_SM90A

}  // namespace baton::cuda
