/// wgmma with both operands in shared memory: c [64, N] += a [64, 16] b [16, N], N = 8, 16 or 32 by the size of c, both
/// with their 16 contiguous (K-major). The operands are descriptors (wgmma_descriptor in mma.cuh).
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_fp16.h>

#include "kernels/cuda/mma.cuh"

#ifdef BATON_SM90A

namespace baton::cuda {

#define BATON_C4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define BATON_WGMMA_N8(type)                                                                                   \
  asm volatile(                                                                                                \
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %6, 0;\n\t"                                                        \
      "wgmma.mma_async.sync.aligned.m64n8k16.f32." type "." type " {%0,%1,%2,%3}, %4, %5, p, 1, 1, 0, 0;\n\t}" \
      : BATON_C4(0)                                                                                            \
      : "l"(a), "l"(b), "r"(1))
#define BATON_WGMMA_N16(type)                                                                                               \
  asm volatile(                                                                                                             \
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %10, 0;\n\t"                                                                    \
      "wgmma.mma_async.sync.aligned.m64n16k16.f32." type "." type " {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p, 1, 1, 0, 0;\n\t}" \
      : BATON_C4(0), BATON_C4(1)                                                                                            \
      : "l"(a), "l"(b), "r"(1))
#define BATON_WGMMA_N32(type)                                                                   \
  asm volatile(                                                                                 \
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %18, 0;\n\t"                                        \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type                               \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, 0, 0;\n\t}" \
      : BATON_C4(0), BATON_C4(1), BATON_C4(2), BATON_C4(3)                                      \
      : "l"(a), "l"(b), "r"(1))

template <class T>
__device__ __forceinline__ void wgmma_shared(float (&c)[1][4], std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_same_v<T, __half>)
    BATON_WGMMA_N8("f16");
  else
    BATON_WGMMA_N8("bf16");
}
template <class T>
__device__ __forceinline__ void wgmma_shared(float (&c)[2][4], std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_same_v<T, __half>)
    BATON_WGMMA_N16("f16");
  else
    BATON_WGMMA_N16("bf16");
}
template <class T>
__device__ __forceinline__ void wgmma_shared(float (&c)[4][4], std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_same_v<T, __half>)
    BATON_WGMMA_N32("f16");
  else
    BATON_WGMMA_N32("bf16");
}
#undef BATON_WGMMA_N8
#undef BATON_WGMMA_N16
#undef BATON_WGMMA_N32
#undef BATON_C4

}  // namespace baton::cuda

#endif  // BATON_SM90A
