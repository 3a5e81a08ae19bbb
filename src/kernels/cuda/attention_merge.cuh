/// Merging of partial states, by one warp or by all warps of a block: the same sums in the same order either way, and in the
/// launch of its own as inside attention, so the bits are the same.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/mma.cuh"

namespace baton::cuda {

/// The step's arrays of one layer group, found through the header on the device.
struct StepArrays {
  const AttentionItem* items;
  const std::int32_t* block_lists;
  const std::int32_t* merge_offsets;
  const std::int32_t* merge_slots;
  const std::int32_t* pairs;
  const std::int32_t* worker_offsets;
  int n_workers;  ///< 0: pairs are not dealt
  int n_items;
  int n_shared_items;

  __device__ explicit StepArrays(const AttentionParams& p) {
    const auto& sections = reinterpret_cast<const StepHeader*>(p.step)->groups[p.group];
    items = reinterpret_cast<const AttentionItem*>(p.step + sections.items.offset);
    n_items = sections.items.count;
    n_shared_items = sections.n_shared_items;
    block_lists = reinterpret_cast<const std::int32_t*>(p.step + sections.block_lists.offset);
    pairs = reinterpret_cast<const std::int32_t*>(p.step + sections.pairs.offset);
    worker_offsets = reinterpret_cast<const std::int32_t*>(p.step + sections.worker_offsets.offset);
    n_workers = sections.worker_offsets.count - 1;
    merge_offsets = reinterpret_cast<const std::int32_t*>(p.step + sections.merge_offsets.offset);
    merge_slots = reinterpret_cast<const std::int32_t*>(p.step + sections.merge_slots.offset);
  }
};

/// A row's slots are cut into parts, each summed front to back; then the parts are summed. The number of slots alone says how
/// many.
constexpr int kMergeParts = 8;
__device__ __forceinline__ int merge_parts(int n_slots) { return min(kMergeParts, max(1, n_slots / 4)); }
/// Whether a row has so many slots that a block should merge it, not a warp.
__device__ __forceinline__ bool wants_block(int n_slots) { return n_slots > 24; }

/// The partial states of one row and query head.
struct MergeSource {
  const std::int32_t* slots;
  int n_slots;
  int head;
};

/// Four neighbouring numbers of an output row, rounded to nearest even if it is 16-bit.
template <class T>
__device__ __forceinline__ void store_output(const AttentionParams& p, std::int64_t index, float4 x) {
  if (p.out_is_f32)
    *reinterpret_cast<float4*>(p.out + index * 4) = x;
  else
    *reinterpret_cast<uint2*>(p.out + index * 2) = {pack_pair<T>(x.x, x.y), pack_pair<T>(x.z, x.w)};
}

__device__ __forceinline__ std::int64_t state_index(const AttentionParams& p, const MergeSource& from, int i) {
  return static_cast<std::int64_t>(__ldcg(from.slots + i)) * p.n_heads + from.head;
}

/// Maximum and sum over all slots, in every lane of the warp.
__device__ __forceinline__ float2 merge_totals(const AttentionParams& p, const MergeSource& from, int lane) {
  float m = -INFINITY;
#pragma unroll 1
  for (int i = lane; i < from.n_slots; i += 32) m = fmaxf(m, __ldcg(p.part_m + state_index(p, from, i)));
  for (int step = 16; step > 0; step /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, step));
  const float base = m == -INFINITY ? 0.0f : m;
  float l = 0;
#pragma unroll 1
  for (int i = lane; i < from.n_slots; i += 32) {
    const std::int64_t state = state_index(p, from, i);
    l += __ldcg(p.part_l + state) * exp2_approx(__ldcg(p.part_m + state) - base);
  }
  for (int step = 16; step > 0; step /= 2) l += __shfl_xor_sync(~0u, l, step);
  return {base, l};
}

/// Weighted sum of the outputs of one part, four columns from `column` (a lane's own; past head_dim the lane only helps).
__device__ __forceinline__ float4 merge_part(const AttentionParams& p, const MergeSource& from, int part, int n_parts,
                                             float base, int column, int lane) {
  float4 sum = {0, 0, 0, 0};
  const int end = from.n_slots * (part + 1) / n_parts;
  const bool has_column = column < p.head_dim;
#pragma unroll 1
  for (int first = from.n_slots * part / n_parts; first < end; first += 32) {
    const int n = min(32, end - first);
    std::int64_t state = 0;
    float weight = 0;
    if (lane < n) {
      state = state_index(p, from, first + lane);
      weight = exp2_approx(__ldcg(p.part_m + state) - base);
    }
#pragma unroll 1
    for (int i = 0; i < n; i += 4) {
      float4 o[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::int64_t at = __shfl_sync(~0u, state, (i + j) % 32);
        if (i + j < n && has_column) o[j] = __ldcg(reinterpret_cast<const float4*>(p.part_o + at * p.head_dim + column));
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float w = __shfl_sync(~0u, weight, (i + j) % 32);
        if (i + j < n && has_column && w != 0)  // an empty state's o may be anything
          sum.x += w * o[j].x, sum.y += w * o[j].y, sum.z += w * o[j].z, sum.w += w * o[j].w;
      }
    }
  }
  return sum;
}

template <class T>
__device__ __forceinline__ void store_merged(const AttentionParams& p, int row, int head, int column, float4 sum, float l) {
  if (column >= p.head_dim) return;
  const float factor = l != 0 ? 1 / l : 0.0f;
  store_output<T>(p, (static_cast<std::int64_t>(row) * p.n_heads + head) * p.head_dim + column,
                  {sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor});
}

/// One row and head by one warp.
template <class T>
__device__ __forceinline__ void merge_by_warp(const AttentionParams& p, const std::int32_t* slots, int n_slots, int row,
                                              int head, int lane) {
  const MergeSource from{slots, n_slots, head};
  const float2 totals = merge_totals(p, from, lane);
  const int n_parts = merge_parts(n_slots);
#pragma unroll 1
  for (int first_column = 0; first_column < p.head_dim; first_column += 128) {
    const int column = first_column + lane * 4;
    float4 sum = {0, 0, 0, 0};
#pragma unroll 1
    for (int part = 0; part < n_parts; ++part) {
      const float4 o = merge_part(p, from, part, n_parts, totals.x, column, lane);
      sum.x += o.x, sum.y += o.y, sum.z += o.z, sum.w += o.w;
    }
    store_merged<T>(p, row, head, column, sum, totals.y);
  }
}

/// Floats of shared memory that merge_by_block works in.
constexpr int kMergeFloats = kMergeParts * 128;

/// One row and head by kWarps warps, a part each at a time. All their threads call it; `barrier_id` is theirs.
template <class T, int kWarps>
__device__ __forceinline__ void merge_by_block(const AttentionParams& p, const std::int32_t* slots, int n_slots, int row,
                                               int head, float* shared, int thread, int barrier_id) {
  const int warp = thread / 32;
  const int lane = thread % 32;
  const MergeSource from{slots, n_slots, head};
  const float2 totals = merge_totals(p, from, lane);
  const int n_parts = merge_parts(n_slots);
  auto* outputs = reinterpret_cast<float4*>(shared);
#pragma unroll 1
  for (int first_column = 0; first_column < p.head_dim; first_column += 128) {
    const int column = first_column + lane * 4;
#pragma unroll 1
    for (int part = warp; part < n_parts; part += kWarps)
      outputs[part * 32 + lane] = merge_part(p, from, part, n_parts, totals.x, column, lane);
    named_barrier(barrier_id, 32 * kWarps);
    if (warp == 0) {
      float4 sum = {0, 0, 0, 0};
#pragma unroll 1
      for (int part = 0; part < n_parts; ++part) {
        const float4 o = outputs[part * 32 + lane];
        sum.x += o.x, sum.y += o.y, sum.z += o.z, sum.w += o.w;
      }
      store_merged<T>(p, row, head, column, sum, totals.y);
    }
    named_barrier(barrier_id, 32 * kWarps);
  }
}

}  // namespace baton::cuda
