/// Merging of one row's partial states by one block: the same function for the launch of its own and inside attention, so both give
/// the same bits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/mma.cuh"

namespace baton::cuda {

constexpr int kMergeThreads = 256;
/// Weights of (slot, head) pairs that lie in shared memory at once; more are taken in turns.
constexpr int kMergeWeights = 1024;
/// Shared floats that merge_row works in: maxima, sums, sums of heads, and the outputs of slot groups.
constexpr int kMergeFloats = 2 * kMergeWeights + 2 * 128 + 4 * kMergeThreads;

/// Four neighbouring numbers of an output row, rounded to nearest even if it is 16-bit.
template <class T>
__device__ __forceinline__ void store_output(const AttentionParams& p, std::int64_t index, float4 x) {
  if (p.out_is_f32)
    *reinterpret_cast<float4*>(p.out + index * 4) = x;
  else
    *reinterpret_cast<uint2*>(p.out + index * 2) = {pack_pair<T>(x.x, x.y), pack_pair<T>(x.z, x.w)};
}

/// Merges the states of token row `row` for the query heads of `kv_head` in slot order: weights relative to the maximum over all
/// slots; the slots are cut into as many groups as there are threads for, each summed front to back, then the groups. What is
/// summed with what depends on the number of slots alone. All kMergeThreads threads call it; `barrier_id` is theirs.
template <class T>
__device__ void merge_row(const AttentionParams& p, const std::int32_t* slots, int n_slots, int row, int kv_head, float* shared,
                          int thread, int barrier_id) {
  const int group = p.n_heads / p.n_kv_heads;
  const int first_head = kv_head * group;
  const int vectors = p.head_dim / 4;  // of a head
  float* weights = shared;
  float* sums = shared + kMergeWeights;
  float* head_max = shared + 2 * kMergeWeights;
  float* head_sum = head_max + 128;
  auto* outputs = reinterpret_cast<float4*>(head_sum + 128);
  // Heads are taken in rounds of as many as have a thread for each vector.
  const int round_heads = min(group, kMergeThreads / vectors);
  for (int head0 = 0; head0 < group; head0 += round_heads) {
    const int n_heads = min(round_heads, group - head0);
    const int n_columns = n_heads * vectors;
    const int n_parts = min(kMergeThreads / n_columns, max(1, n_slots / 4));
    const int part = thread / n_columns;
    const int column = thread % n_columns;
    const int my_head = column / vectors;
    const int chunk_slots = kMergeWeights / n_heads;
    float4 sum = {0, 0, 0, 0};
    float running_max = -INFINITY;  // of my head over the chunks so far
    for (int chunk = 0; chunk < n_slots; chunk += chunk_slots) {
      const int n = min(chunk_slots, n_slots - chunk);
      named_barrier(barrier_id, kMergeThreads);  // the shared floats are free
      for (int i = thread; i < n * n_heads; i += kMergeThreads) {
        const std::int64_t state = static_cast<std::int64_t>(__ldcg(slots + chunk + i / n_heads)) * p.n_heads + first_head + head0 + i % n_heads;
        weights[i] = __ldcg(p.part_m + state);
        sums[i] = __ldcg(p.part_l + state);
      }
      named_barrier(barrier_id, kMergeThreads);
      // One warp a head: the maximum, the weights, the sum.
      for (int head = thread / 32; head < n_heads; head += kMergeThreads / 32) {
        const int lane = thread % 32;
        float m = -INFINITY;
        for (int i = lane; i < n; i += 32) m = fmaxf(m, weights[i * n_heads + head]);
        for (int step = 16; step > 0; step /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, step));
        if (chunk > 0) m = fmaxf(m, head_max[head]);
        const float base = m == -INFINITY ? 0.0f : m;
        float l = 0;
        for (int i = lane; i < n; i += 32) {
          const float weight = exp2_approx(weights[i * n_heads + head] - base);
          weights[i * n_heads + head] = weight;
          l += weight * sums[i * n_heads + head];
        }
        for (int step = 16; step > 0; step /= 2) l += __shfl_xor_sync(~0u, l, step);
        __syncwarp();
        if (lane == 0) {
          head_sum[head] = chunk > 0 ? head_sum[head] * exp2_approx(head_max[head] - base) + l : l;
          head_max[head] = base == m ? m : -INFINITY;
        }
      }
      named_barrier(barrier_id, kMergeThreads);
      if (part < n_parts) {
        const float new_max = head_max[my_head];
        if (chunk > 0 && running_max != -INFINITY) {
          const float factor = exp2_approx(running_max - new_max);
          sum.x *= factor, sum.y *= factor, sum.z *= factor, sum.w *= factor;
        }
        running_max = new_max;
        const int begin = n * part / n_parts;
        const int end = n * (part + 1) / n_parts;
        const std::int64_t at = (static_cast<std::int64_t>(first_head + head0 + my_head) * vectors + column % vectors);
        const auto* states = reinterpret_cast<const float4*>(p.part_o);
#pragma unroll 8
        for (int i = begin; i < end; ++i) {
          const float weight = weights[i * n_heads + my_head];
          const std::int64_t slot = __ldcg(slots + chunk + i);
          const float4 o = __ldcg(states + slot * p.n_heads * vectors + at);
          if (weight != 0) {  // an empty state's o may be anything
            sum.x += weight * o.x, sum.y += weight * o.y, sum.z += weight * o.z, sum.w += weight * o.w;
          }
        }
      }
    }
    if (n_parts > 1) {
      if (part < n_parts) outputs[part * n_columns + column] = sum;
      named_barrier(barrier_id, kMergeThreads);
    }
    if (part == 0) {
      for (int i = 1; i < n_parts; ++i) {
        const float4 o = outputs[i * n_columns + column];
        sum.x += o.x, sum.y += o.y, sum.z += o.z, sum.w += o.w;
      }
      const float l = head_sum[my_head];
      const float factor = l > 0 ? p.v_scale / l : 0.0f;
      const std::int64_t index = (static_cast<std::int64_t>(row) * p.n_heads + first_head + head0 + my_head) * p.head_dim + column % vectors * 4;
      store_output<T>(p, index, {sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor});
    }
    named_barrier(barrier_id, kMergeThreads);
  }
}

}  // namespace baton::cuda
