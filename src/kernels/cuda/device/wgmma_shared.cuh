/// wgmma with both operands in shared memory: c [64, N] += a [64, 16] b [16, N], N = 8, 16, 32, 48, 56, 64, 96 or 128 by the
/// size of c, both with their 16 contiguous (K-major). The operands are descriptors (wgmma_descriptor in mma.cuh).
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_fp16.h>

#include "kernels/cuda/device/mma.cuh"

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
#define BATON_WGMMA_N48(type)                                                                                            \
  asm volatile(                                                                                                          \
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %26, 0;\n\t"                                                                 \
      "wgmma.mma_async.sync.aligned.m64n48k16.f32." type "." type                                                        \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23}, %24, %25, p, 1, 1, 0, " \
      "0;\n\t}"                                                                                                          \
      : BATON_C4(0), BATON_C4(1), BATON_C4(2), BATON_C4(3), BATON_C4(4), BATON_C4(5)                                     \
      : "l"(a), "l"(b), "r"(1))
#define BATON_WGMMA_N56(type)                                                                     \
  asm volatile(                                                                                   \
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %30, 0;\n\t"                                          \
      "wgmma.mma_async.sync.aligned.m64n56k16.f32." type "." type                                 \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"  \
      "%24,%25,%26,%27}, %28, %29, p, 1, 1, 0, 0;\n\t}"                                           \
      : BATON_C4(0), BATON_C4(1), BATON_C4(2), BATON_C4(3), BATON_C4(4), BATON_C4(5), BATON_C4(6) \
      : "l"(a), "l"(b), "r"(1))
#define BATON_WGMMA_N64(type)                                                                                  \
  asm volatile(                                                                                                \
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"                                                       \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                              \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"               \
      "%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, p, 1, 1, 0, 0;\n\t}"                                        \
      : BATON_C4(0), BATON_C4(1), BATON_C4(2), BATON_C4(3), BATON_C4(4), BATON_C4(5), BATON_C4(6), BATON_C4(7) \
      : "l"(a), "l"(b), "r"(accumulate))
#define BATON_WGMMA_N96(type)                                                                                                \
  asm volatile(                                                                                                              \
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %50, 0;\n\t"                                                                     \
      "wgmma.mma_async.sync.aligned.m64n96k16.f32." type "." type                                                            \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"                             \
      "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,"                             \
      "%46,%47}, %48, %49, p, 1, 1, 0, 0;\n\t}"                                                                              \
      : BATON_C4(0), BATON_C4(1), BATON_C4(2), BATON_C4(3), BATON_C4(4), BATON_C4(5), BATON_C4(6), BATON_C4(7), BATON_C4(8), \
        BATON_C4(9), BATON_C4(10), BATON_C4(11)                                                                              \
      : "l"(a), "l"(b), "r"(1))

#define BATON_WGMMA_N128(type)                                                                                               \
  asm volatile(                                                                                                              \
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"                                                                     \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                                                           \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"     \
      "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,"     \
      "%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, 0, 0;\n\t}"                                                              \
      : BATON_C4(0), BATON_C4(1), BATON_C4(2), BATON_C4(3), BATON_C4(4), BATON_C4(5), BATON_C4(6), BATON_C4(7), BATON_C4(8), \
        BATON_C4(9), BATON_C4(10), BATON_C4(11), BATON_C4(12), BATON_C4(13), BATON_C4(14), BATON_C4(15)                      \
      : "l"(a), "l"(b), "r"(accumulate))

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
template <class T>
__device__ __forceinline__ void wgmma_shared(float (&c)[6][4], std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_same_v<T, __half>)
    BATON_WGMMA_N48("f16");
  else
    BATON_WGMMA_N48("bf16");
}
template <class T>
__device__ __forceinline__ void wgmma_shared(float (&c)[7][4], std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_same_v<T, __half>)
    BATON_WGMMA_N56("f16");
  else
    BATON_WGMMA_N56("bf16");
}
template <class T>
__device__ __forceinline__ void wgmma_shared(float (&c)[12][4], std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_same_v<T, __half>)
    BATON_WGMMA_N96("f16");
  else
    BATON_WGMMA_N96("bf16");
}
/// Begins at zero unless `accumulate`.
template <class T>
__device__ __forceinline__ void wgmma_shared(float (&c)[8][4], std::uint64_t a, std::uint64_t b, int accumulate) {
  if constexpr (std::is_same_v<T, __half>)
    BATON_WGMMA_N64("f16");
  else
    BATON_WGMMA_N64("bf16");
}
template <class T>
__device__ __forceinline__ void wgmma_shared(float (&c)[16][4], std::uint64_t a, std::uint64_t b, int accumulate) {
  if constexpr (std::is_same_v<T, __half>)
    BATON_WGMMA_N128("f16");
  else
    BATON_WGMMA_N128("bf16");
}
#undef BATON_WGMMA_N128
#undef BATON_WGMMA_N64
#undef BATON_WGMMA_N8
#undef BATON_WGMMA_N16
#undef BATON_WGMMA_N32
#undef BATON_WGMMA_N48
#undef BATON_WGMMA_N56
#undef BATON_WGMMA_N96
#undef BATON_C4

}  // namespace baton::cuda

#endif  // BATON_SM90A
