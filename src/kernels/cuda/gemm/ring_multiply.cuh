/// What the warpgroups of the streaming, the chain and the broad GEMM do: they multiply the stages of a ring (stream_ring.cuh).
#pragma once

#include <cstdint>

#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/wgmma_shared.cuh"
#include "kernels/cuda/gemm/stream_ring.cuh"
#include "kernels/cuda/gemm/tensor_map.h"

#ifdef BATON_SM90A

namespace baton::cuda {

/// Addresses of a stage's boxes.
struct Operands {
  std::uint32_t a;
  std::uint32_t b;
};

/// This warp has read the stage in `slot`; -1 is none.
__device__ __forceinline__ void release_stage(const Ring& ring, int slot) {
  if (slot >= 0 && threadIdx.x % 32 == 0) barrier_arrive(ring.empty + 8 * slot);
}

template <int kChains, int kGroups>
__device__ __forceinline__ void own_chains(float (&sums)[kChains][kGroups][4]) {
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) own_accumulators(sums[chain]);
}

/// The 8 x 8 matrix of 16-bit numbers that a warp holds, transposed.
__device__ __forceinline__ std::uint32_t transposed_in_warp(std::uint32_t pair) {
  __syncwarp();  // lanes may come from different waits
  std::uint32_t other;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(other) : "r"(pair));
  return other;
}

/// Sets `sums` to a b^T over the next `n_stages` of the ring, whose slots are `ring_stages`; each warp of a warpgroup calls it.
/// `operands(slot)` gives the addresses of a stage's first boxes {a, b}: 64 rows of wgmma's M, and its N, kBoxK numbers of each;
/// `a_bytes` and `b_bytes` are from box to box. Steps of 16 numbers are added to the chains in turn.
template <class T, int kBoxes, int kChains, int kGroups, class OperandsOf>
__device__ __forceinline__ void multiply_stages(const Ring& ring, RingPlace& place, int ring_stages, int n_stages,
                                                float (&sums)[kChains][kGroups][4], int a_bytes, int b_bytes,
                                                OperandsOf&& operands) {
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain)
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (float& sum : sums[chain][group]) sum = 0;
  int before = -1;  // the slot whose matmuls may still run
#pragma unroll 1
  for (int stage = 0; stage < n_stages; ++stage) {
    barrier_wait(ring.has_weight + 8 * place.slot, place.parity);
    barrier_wait(ring.has_x + 8 * place.slot, place.parity);
    const Operands first = operands(place.slot);
    own_chains(sums);
    wgmma_fence();
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const std::uint64_t a = wgmma_descriptor(first.a + box * a_bytes, 16, 1024);
      const std::uint64_t b = wgmma_descriptor(first.b + box * b_bytes, 16, 1024);
#pragma unroll
      for (int step = 0; step < kBoxK / 16; ++step)  // of 16 numbers; descriptors count 16 bytes
        wgmma_shared<T>(sums[(box * (kBoxK / 16) + step) % kChains], a + step * 2, b + step * 2);
    }
    wgmma_commit();
    wgmma_wait<1>();
    release_stage(ring, before);
    before = place.slot;
    place.advance(ring_stages);
  }
  wgmma_wait<0>();
  own_chains(sums);
  release_stage(ring, before);
}

}  // namespace baton::cuda

#endif  // BATON_SM90A
