/// Sums and maxima over a block with the same bits in every run: first over lanes, then over warps in order.
#pragma once

namespace baton::cuda {

inline constexpr int kWarpSize = 32;

/// Combines one value of each thread with `join`, which must be commutative. Every thread gets the result. blockDim.x
/// must be a multiple of 32. `shared` has room for one value of each warp and may be reused at once.
template <class T, class Join>
__device__ T block_join(T value, T* shared, Join join) {
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
    value = join(value, __shfl_xor_sync(0xffffffffu, value, distance));
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int n_warps = static_cast<int>(blockDim.x) / kWarpSize;
  if (lane == 0) shared[warp] = value;
  __syncthreads();
  T joined = shared[lane < n_warps ? lane : 0];
  for (int distance = 1; distance < n_warps; distance *= 2) {
    const T other = __shfl_down_sync(0xffffffffu, joined, distance);
    if (lane + distance < n_warps) joined = join(joined, other);
  }
  joined = __shfl_sync(0xffffffffu, joined, 0);
  __syncthreads();
  return joined;
}

}  // namespace baton::cuda
