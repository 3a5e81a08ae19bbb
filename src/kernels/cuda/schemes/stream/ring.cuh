/// The ring of stages of the streaming kernels over weights of 8 and 4 bits, and the copies that fill it.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/gemm/stream_layout.h"
#include "kernels/cuda/gemm/stream_ring.cuh"
#include "kernels/cuda/schemes/scheme_stream.h"

namespace baton::cuda {

inline constexpr int kMostSchemeStages = 16;
inline constexpr int kSchemeBarrierBytes = 3 * kMostSchemeStages * 8;

#ifdef BATON_SM90A

/// Where a block's ring lies in shared memory: x, values, scales and zeros of the stages, then sums that warps join.
struct SchemeRing {
  Ring ring;  ///< stages: values
  std::uint32_t x;
  std::uint32_t groups;
  std::uint32_t join;
  int group_bytes;
};

/// One thread's copies of all stages of a block's run: `copy(stage, i, slot)`.
template <class Copy>
__device__ __forceinline__ void copy_scheme_stages(const SchemeStreamParams& p, const Ring& ring, Copy&& copy) {
  const int first = p.schedule.begin(static_cast<int>(blockIdx.x));
  const int n = p.schedule.begin(static_cast<int>(blockIdx.x) + 1) - first;
  StreamStage stage{first / p.schedule.k_stages, first % p.schedule.k_stages};
  RingPlace place;
#pragma unroll 1
  for (int i = 0; i < n; ++i, stage.advance(p.schedule.k_stages)) {
    if (i >= p.n_stages) barrier_wait(ring.empty + 8 * place.slot, place.parity ^ 1);
    copy(stage, i, place.slot);
    place.advance(p.n_stages);
  }
}

#endif  // BATON_SM90A

}  // namespace baton::cuda
