/// Operands of GEMMs that go from memory straight to the matrix units. The order of k inside a step of 32 is free if weight and x
/// have the same one: lane 4 g + t takes the 8 numbers from 8 t on of weight rows g and g + 8 and of row g of x, one 16-byte load
/// (a chunk) each, as the fragments of two multiplications.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/mma.cuh"

namespace baton::cuda {

/// Loads 16 bytes that are read only once.
__device__ __forceinline__ uint4 load_chunk_once(const void* from) {
  uint4 words;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from));
  return words;
}

/// sums += 16 weight rows, whose chunks are `low` (row g) and `high` (row g + 8), by 8 rows of x. T is the type of both.
template <class T>
__device__ __forceinline__ void multiply_chunks(float (&sums)[4], const uint4& low, const uint4& high, const uint4& x) {
  const std::uint32_t even[4] = {low.x, high.x, low.y, high.y};
  const std::uint32_t odd[4] = {low.z, high.z, low.w, high.w};
  multiply_16x8x16<T>(sums, even, x.x, x.y);
  multiply_16x8x16<T>(sums, odd, x.z, x.w);
}

}  // namespace baton::cuda
