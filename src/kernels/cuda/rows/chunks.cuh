/// Loads and stores of eight numbers at a time by kernels that mostly wait for memory, so dtypes are runtime parameters: f32,
/// bf16 or f16.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/dtype.h"

namespace baton::cuda {

/// 16 bytes of a 16-bit type.
constexpr int kChunkDims = 8;

__device__ inline float load(const void* from, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::bf16: return __bfloat162float(static_cast<const __nv_bfloat16*>(from)[index]);
    case DType::f16: return __half2float(static_cast<const __half*>(from)[index]);
    default: return static_cast<const float*>(from)[index];
  }
}

/// Loads eight values from an index whose byte offset is a multiple of 16.
__device__ inline void load_chunk(const void* from, DType dtype, std::int64_t index, float (&x)[kChunkDims]) {
  if (dtype == DType::f32) {
    const auto* quads = reinterpret_cast<const float4*>(static_cast<const float*>(from) + index);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float4 quad = quads[i];
      x[4 * i] = quad.x;
      x[4 * i + 1] = quad.y;
      x[4 * i + 2] = quad.z;
      x[4 * i + 3] = quad.w;
    }
    return;
  }
  const uint4 words = *reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(from) + index);
  const std::uint32_t word[] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto low = static_cast<unsigned short>(word[i]);
    const auto high = static_cast<unsigned short>(word[i] >> 16);
    const bool is_bf16 = dtype == DType::bf16;
    x[2 * i] = is_bf16 ? __bfloat162float(__ushort_as_bfloat16(low)) : __half2float(__ushort_as_half(low));
    x[2 * i + 1] = is_bf16 ? __bfloat162float(__ushort_as_bfloat16(high)) : __half2float(__ushort_as_half(high));
  }
}

__device__ inline void store(void* to, DType dtype, std::int64_t index, float x) {
  switch (dtype) {
    case DType::bf16: static_cast<__nv_bfloat16*>(to)[index] = __float2bfloat16_rn(x); break;
    case DType::f16: static_cast<__half*>(to)[index] = __float2half_rn(x); break;
    default: static_cast<float*>(to)[index] = x;
  }
}

/// Eight values as 16 bits each, in memory order.
__device__ inline uint4 pack_16_bits(DType dtype, const float (&x)[kChunkDims]) {
  std::uint32_t word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned short low = dtype == DType::bf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(x[2 * i]))
                                                    : __half_as_ushort(__float2half_rn(x[2 * i]));
    const unsigned short high = dtype == DType::bf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(x[2 * i + 1]))
                                                     : __half_as_ushort(__float2half_rn(x[2 * i + 1]));
    word[i] = low | static_cast<std::uint32_t>(high) << 16;
  }
  return make_uint4(word[0], word[1], word[2], word[3]);
}

/// Stores eight values at an index whose byte offset is a multiple of 16.
__device__ inline void store_chunk(void* to, DType dtype, std::int64_t index, const float (&x)[kChunkDims]) {
  if (dtype == DType::f32) {
    auto* quads = reinterpret_cast<float4*>(static_cast<float*>(to) + index);
    quads[0] = make_float4(x[0], x[1], x[2], x[3]);
    quads[1] = make_float4(x[4], x[5], x[6], x[7]);
  } else {
    *reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(to) + index) = pack_16_bits(dtype, x);
  }
}

/// Loads the first `n` of eight values, at any index unless `is_aligned`; the others become 0.
__device__ inline void load_some(const void* from, DType dtype, std::int64_t index, std::int64_t n, bool is_aligned,
                                 float (&x)[kChunkDims]) {
  if (is_aligned && n >= kChunkDims) return load_chunk(from, dtype, index, x);
#pragma unroll
  for (int i = 0; i < kChunkDims; ++i) x[i] = i < n ? load(from, dtype, index + i) : 0.0f;
}

}  // namespace baton::cuda
