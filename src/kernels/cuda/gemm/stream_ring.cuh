/// A ring of stages in shared memory: copying threads fill it with boxes of a weight and of x, and a warpgroup multiplies.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/mma.cuh"

#ifdef BATON_SM90A

namespace baton::cuda {

/// Addresses in shared memory: the ring, and barriers of its stages: the weight has arrived, x has, and the stage is empty.
struct Ring {
  std::uint32_t stages;
  std::uint32_t has_weight;
  std::uint32_t has_x;
  std::uint32_t empty;
};

/// The stage of the ring that comes next, and the parity of its phase.
struct RingPlace {
  int slot = 0;
  int parity = 0;
  __device__ __forceinline__ void advance(int n_stages) {
    if (++slot < n_stages) return;
    slot = 0;
    parity ^= 1;
  }
};

/// Initialises the barriers; `n_readers` arrivals empty a stage. One thread calls it, before the block's first barrier.
__device__ __forceinline__ void init_ring(const Ring& ring, int n_stages, int n_readers) {
  for (int i = 0; i < n_stages; ++i) {
    barrier_init(ring.has_weight + 8 * i, 1);
    barrier_init(ring.has_x + 8 * i, 1);
    barrier_init(ring.empty + 8 * i, n_readers);
  }
  show_barriers_to_copies();
}

}  // namespace baton::cuda

#endif  // BATON_SM90A
