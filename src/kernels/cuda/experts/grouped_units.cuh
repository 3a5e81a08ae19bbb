/// The work of a grouped matmul, cut into units of one expert, some of its places and some columns of its weight. The
/// number of units follows from offsets that only the device knows, so a fixed grid of blocks shares the units.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/device/warp.cuh"

namespace baton::cuda {

/// x, weight and out have the kernel's types.
struct GroupedParams {
  const void* x;
  const std::int32_t* rows;     ///< rows of x, or null: the places themselves
  const std::int32_t* offsets;  ///< [n_experts + 1]
  const void* weight;           ///< [n_experts, n, k]
  void* out;                    ///< [places, n]
  const float* bias;            ///< [n_experts, n], or null
  std::int32_t n_experts;
  std::int32_t n;
  std::int32_t k;
};

/// `weight` is the memory of all experts.
inline GroupedParams grouped_params(const GroupedMatmulArgs& args, const std::byte* weight) {
  GroupedParams params{};
  params.x = args.x.data;
  params.rows = reinterpret_cast<const std::int32_t*>(args.rows.data);
  params.offsets = reinterpret_cast<const std::int32_t*>(args.offsets.data);
  params.weight = weight;
  params.out = args.out.data;
  params.bias = reinterpret_cast<const float*>(args.bias.data);
  params.n_experts = static_cast<std::int32_t>(args.experts->n_experts);
  params.n = static_cast<std::int32_t>(args.experts->n);
  params.k = static_cast<std::int32_t>(args.experts->k);
  return params;
}

/// Places [place, place + n_places) of an expert, and the columns from `column` on.
struct GroupedUnit {
  int expert;
  int place;
  int n_places;
  int column;
};

/// The units of all experts before each expert: [kMaxExperts + 1] in shared memory.
using UnitOffsets = int[kMaxExperts + 1];

template <int kPlaces>
__device__ __forceinline__ int tiles_of(const GroupedParams& p, int expert) {
  return (p.offsets[expert + 1] - p.offsets[expert] + kPlaces - 1) / kPlaces;
}

/// Counts the units of kPlaces places and kColumns columns. All threads of the block call it; it ends with a barrier.
template <int kPlaces, int kColumns>
__device__ __forceinline__ void count_units(const GroupedParams& p, UnitOffsets& offsets) {
  const auto lane = static_cast<int>(threadIdx.x);
  if (lane < kWarpSize) {
    const int n_slices = (p.n + kColumns - 1) / kColumns;
    const int per_lane = (p.n_experts + kWarpSize - 1) / kWarpSize;
    const int begin = min(lane * per_lane, p.n_experts);
    const int end = min(begin + per_lane, p.n_experts);
    int own = 0;
    for (int e = begin; e < end; ++e) own += tiles_of<kPlaces>(p, e) * n_slices;
    int sum = own;
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, distance);
      if (lane >= distance) sum += other;
    }
    int at = sum - own;
    for (int e = begin; e < end; ++e) {
      offsets[e] = at;
      at += tiles_of<kPlaces>(p, e) * n_slices;
    }
    if (lane + 1 == kWarpSize) offsets[p.n_experts] = sum;
  }
  __syncthreads();
}

/// Unit `index` of count_units<kPlaces, kColumns>. Units that share columns of a weight are neighbours, so one of them
/// reads the weight from memory and the others from the L2.
template <int kPlaces, int kColumns>
__device__ __forceinline__ GroupedUnit unit_at(const GroupedParams& p, const UnitOffsets& offsets, int index) {
  int expert = 0;
  for (int end = p.n_experts; expert + 1 < end;) {  // the last expert with offsets[expert] <= index
    const int middle = (expert + end) / 2;
    if (offsets[middle] <= index)
      expert = middle;
    else
      end = middle;
  }
  const int n_tiles = tiles_of<kPlaces>(p, expert);
  const int of_expert = index - offsets[expert];
  const int place = p.offsets[expert] + of_expert % n_tiles * kPlaces;
  return {expert, place, min(kPlaces, p.offsets[expert + 1] - place), of_expert / n_tiles * kColumns};
}

/// What is added to the sums of a column of an expert's weight.
__device__ __forceinline__ float bias_at(const GroupedParams& p, int expert, int column) {
  return p.bias == nullptr ? 0.0f : __ldg(p.bias + static_cast<std::int64_t>(expert) * p.n + column);
}

/// The row of x that a place multiplies.
__device__ __forceinline__ std::int64_t row_at(const GroupedParams& p, int place) {
  return p.rows == nullptr ? place : p.rows[place];
}

}  // namespace baton::cuda
