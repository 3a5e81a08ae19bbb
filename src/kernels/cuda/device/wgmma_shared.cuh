/// wgmma with b in shared memory: c [64, N] += a [64, 16] b [16, N], N by the size of c, both operands with their 16
/// contiguous (K-major). b, and a in shared memory, are descriptors (wgmma_descriptor in mma.cuh).
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_fp16.h>

#include "kernels/cuda/device/mma.cuh"

#ifdef BATON_SM90A

namespace baton::cuda {

// The sums of 8 columns each, as operands of the instruction and as its outputs.
#define BATON_SUMS_1 "%0,%1,%2,%3"
#define BATON_SUMS_2 BATON_SUMS_1 ",%4,%5,%6,%7"
#define BATON_SUMS_4 BATON_SUMS_2 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define BATON_SUMS_6 BATON_SUMS_4 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define BATON_SUMS_7 BATON_SUMS_6 ",%24,%25,%26,%27"
#define BATON_SUMS_8 BATON_SUMS_7 ",%28,%29,%30,%31"
#define BATON_SUMS_10 BATON_SUMS_8 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define BATON_SUMS_12 BATON_SUMS_10 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define BATON_SUMS_14 BATON_SUMS_12 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define BATON_SUMS_16 BATON_SUMS_14 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define BATON_SUMS_18 BATON_SUMS_16 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define BATON_SUMS_20 BATON_SUMS_18 ",%72,%73,%74,%75,%76,%77,%78,%79"
#define BATON_SUMS_21 BATON_SUMS_20 ",%80,%81,%82,%83"
#define BATON_SUMS_24 BATON_SUMS_21 ",%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define BATON_SUMS_28 BATON_SUMS_24 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define BATON_C(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define BATON_C_1 BATON_C(0)
#define BATON_C_2 BATON_C_1, BATON_C(1)
#define BATON_C_4 BATON_C_2, BATON_C(2), BATON_C(3)
#define BATON_C_6 BATON_C_4, BATON_C(4), BATON_C(5)
#define BATON_C_7 BATON_C_6, BATON_C(6)
#define BATON_C_8 BATON_C_7, BATON_C(7)
#define BATON_C_10 BATON_C_8, BATON_C(8), BATON_C(9)
#define BATON_C_12 BATON_C_10, BATON_C(10), BATON_C(11)
#define BATON_C_14 BATON_C_12, BATON_C(12), BATON_C(13)
#define BATON_C_16 BATON_C_14, BATON_C(14), BATON_C(15)
#define BATON_C_18 BATON_C_16, BATON_C(16), BATON_C(17)
#define BATON_C_20 BATON_C_18, BATON_C(18), BATON_C(19)
#define BATON_C_21 BATON_C_20, BATON_C(20)
#define BATON_C_24 BATON_C_21, BATON_C(21), BATON_C(22), BATON_C(23)
#define BATON_C_28 BATON_C_24, BATON_C(24), BATON_C(25), BATON_C(26), BATON_C(27)
#define BATON_WGMMA_OF(type, groups, columns, a_place, b_place, accumulate_place)                            \
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " accumulate_place                                      \
               ", 0;\n\t"                                                                                    \
               "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {" BATON_SUMS_##groups \
               "}, " a_place ", " b_place ", p, 1, 1, " BATON_ORDER ";\n\t}"                                 \
               : BATON_C_##groups                                                                            \
               : BATON_A, "l"(b), "r"(accumulate))
#define BATON_WGMMA(groups, columns, ...)                   \
  if constexpr (kGroups == groups) {                        \
    if constexpr (std::is_same_v<T, __half>)                \
      BATON_WGMMA_OF("f16", groups, columns, __VA_ARGS__);  \
    else                                                    \
      BATON_WGMMA_OF("bf16", groups, columns, __VA_ARGS__); \
  }

// Both in shared memory.
#define BATON_A "l"(a)
#define BATON_ORDER "0, 0"
/// Begins at zero unless `accumulate`.
template <class T, int kGroups>
__device__ __forceinline__ void wgmma_shared(float (&c)[kGroups][4], std::uint64_t a, std::uint64_t b, int accumulate = 1) {
  static_assert(kGroups == 1 || kGroups == 7 || kGroups == 21 || kGroups == 24 || kGroups == 28 ||
                (kGroups % 2 == 0 && kGroups <= 20));
  BATON_WGMMA(1, "8", "%4", "%5", "%6")
  BATON_WGMMA(2, "16", "%8", "%9", "%10")
  BATON_WGMMA(4, "32", "%16", "%17", "%18")
  BATON_WGMMA(6, "48", "%24", "%25", "%26")
  BATON_WGMMA(7, "56", "%28", "%29", "%30")
  BATON_WGMMA(8, "64", "%32", "%33", "%34")
  BATON_WGMMA(10, "80", "%40", "%41", "%42")
  BATON_WGMMA(12, "96", "%48", "%49", "%50")
  BATON_WGMMA(14, "112", "%56", "%57", "%58")
  BATON_WGMMA(16, "128", "%64", "%65", "%66")
  BATON_WGMMA(18, "144", "%72", "%73", "%74")
  BATON_WGMMA(20, "160", "%80", "%81", "%82")
  BATON_WGMMA(21, "168", "%84", "%85", "%86")
  BATON_WGMMA(24, "192", "%96", "%97", "%98")
  BATON_WGMMA(28, "224", "%112", "%113", "%114")
}
#undef BATON_A
#undef BATON_ORDER

// a in registers.
#define BATON_A "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
#define BATON_ORDER "0"
/// Begins at zero unless `accumulate`.
template <class T, int kGroups>
__device__ __forceinline__ void wgmma_registers(float (&c)[kGroups][4], const std::uint32_t (&a)[4], std::uint64_t b,
                                                int accumulate) {
  static_assert(kGroups == 1 || kGroups == 2 || kGroups == 4 || kGroups == 8 || kGroups == 16);
  BATON_WGMMA(1, "8", "{%4,%5,%6,%7}", "%8", "%9")
  BATON_WGMMA(2, "16", "{%8,%9,%10,%11}", "%12", "%13")
  BATON_WGMMA(4, "32", "{%16,%17,%18,%19}", "%20", "%21")
  BATON_WGMMA(8, "64", "{%32,%33,%34,%35}", "%36", "%37")
  BATON_WGMMA(16, "128", "{%64,%65,%66,%67}", "%68", "%69")
}
#undef BATON_A
#undef BATON_ORDER
#undef BATON_WGMMA
#undef BATON_WGMMA_OF
#undef BATON_C_28
#undef BATON_C_24
#undef BATON_C_21
#undef BATON_C_20
#undef BATON_C_18
#undef BATON_C_16
#undef BATON_C_14
#undef BATON_C_12
#undef BATON_C_10
#undef BATON_C_8
#undef BATON_C_7
#undef BATON_C_6
#undef BATON_C_4
#undef BATON_C_2
#undef BATON_C_1
#undef BATON_C
#undef BATON_SUMS_28
#undef BATON_SUMS_24
#undef BATON_SUMS_21
#undef BATON_SUMS_20
#undef BATON_SUMS_18
#undef BATON_SUMS_16
#undef BATON_SUMS_14
#undef BATON_SUMS_12
#undef BATON_SUMS_10
#undef BATON_SUMS_8
#undef BATON_SUMS_7
#undef BATON_SUMS_6
#undef BATON_SUMS_4
#undef BATON_SUMS_2
#undef BATON_SUMS_1

}  // namespace baton::cuda

#endif  // BATON_SM90A
