/// Partial sums that blocks of one kernel pass through global memory. They are their own flags: a word that is not
/// kNotWritten has arrived, and its reader resets it.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace baton::cuda {

/// A word of partial sums that has not arrived: all ones.
inline constexpr std::uint32_t kNotWritten = 0xffffffffu;

__device__ __forceinline__ uint4 load_partial(const uint4* at) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at)
               : "memory");
  return v;
}
__device__ __forceinline__ void store_partial(uint4* at, const uint4& v) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ void reset_partial(uint4* at) {
  store_partial(at, {kNotWritten, kNotWritten, kNotWritten, kNotWritten});
}
__device__ __forceinline__ bool is_written(const uint4& v) {
  return v.x != kNotWritten && v.y != kNotWritten && v.z != kNotWritten && v.w != kNotWritten;
}
/// Never kNotWritten: that NaN becomes another.
__device__ __forceinline__ std::uint32_t as_partial(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  return bits == kNotWritten ? 0x7fffffffu : bits;
}
__device__ __forceinline__ uint4 as_partial(const float (&sums)[4]) {
  return {as_partial(sums[0]), as_partial(sums[1]), as_partial(sums[2]), as_partial(sums[3])};
}
__device__ __forceinline__ void add_partial(float (&sums)[4], const uint4& given) {
  sums[0] += __uint_as_float(given.x);
  sums[1] += __uint_as_float(given.y);
  sums[2] += __uint_as_float(given.z);
  sums[3] += __uint_as_float(given.w);
}

}  // namespace baton::cuda
