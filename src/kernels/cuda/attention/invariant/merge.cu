/// Merges partial states in batch-invariant mode: each row's from left to right, however many there are.
#include <algorithm>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/attention/invariant/fold.cuh"
#include "kernels/cuda/attention/invariant/invariant.h"
#include "kernels/cuda/attention/step.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"

namespace baton::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kLoads = 16;  ///< outputs that a lane loads at the same time

/// A row's states of one query head: merge inputs [begin, begin + n).
struct RowStates {
  int head = 0;
  int begin = 0;
  int n = 0;
  int input = 0;  ///< the lane's of the first 32
  float sink = 0;
};

/// The step was uploaded before the kernel before started, so this may be called before the wait for that kernel.
__device__ __forceinline__ RowStates read_states(const AttentionParams& p, const StepArrays& step, int unit, int lane) {
  RowStates states;
  if (unit >= step.n_rows * p.n_heads) return states;
  const int row = static_cast<int>(static_cast<unsigned>(unit) / static_cast<unsigned>(p.n_heads));
  states.head = unit - row * p.n_heads;
  states.sink = sink_of(p, states.head);
  states.begin = __ldg(step.merge_offsets + row);
  states.n = __ldg(step.merge_offsets + row + 1) - states.begin;
  if (lane < states.n) states.input = __ldg(step.merge_inputs + states.begin + lane);
  return states;
}

/// The finished outputs of four columns. Each lane of the warp passes its own columns.
__device__ __forceinline__ float4 fold_states(const AttentionParams& p, const StepArrays& step, const RowStates& states,
                                              int column, int lane) {
  float m = -INFINITY;
  float l = 0;
  float4 o = {0, 0, 0, 0};
#pragma unroll 1
  for (int first = 0; first < states.n; first += 32) {
    // Each lane reads the place, maximum and sum of one state.
    const int n = min(32, states.n - first);
    int input = states.input;
    if (first > 0 && lane < n) input = __ldg(step.merge_inputs + states.begin + first + lane);
    const std::int64_t state = static_cast<std::int64_t>(input) * p.n_heads + states.head;
    const float state_m = lane < n ? __ldcg(p.part_m + state) : -INFINITY;
    const float state_l = lane < n ? __ldcg(p.part_l + state) : 0;
#pragma unroll 1
    for (int i = 0; i < n; i += kLoads) {
      float4 loaded[kLoads];
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const std::int64_t at = __shfl_sync(~0u, state, (i + j) % 32);
        if (i + j < n && column < p.head_dim)
          loaded[j] = __ldcg(reinterpret_cast<const float4*>(p.part_o + at * p.head_dim + column));
      }
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        if (i + j >= n) break;
        const float more_m = __shfl_sync(~0u, state_m, i + j);
        const float more_l = __shfl_sync(~0u, state_l, i + j);
        const StateFold fold(m, more_m);
        m = fold.max();
        l = fold(l, more_l);
        o = {fold(o.x, loaded[j].x), fold(o.y, loaded[j].y), fold(o.z, loaded[j].z), fold(o.w, loaded[j].w)};
      }
    }
  }
  return finished_output(o, output_factor(finished_sum(p, states.sink, m, l)));
}

/// Each warp takes a row and query head.
template <class T>
__global__ void __launch_bounds__(kThreads) fold_kernel(const __grid_constant__ AttentionParams p) {
  let_next_kernel_start();
  const StepArrays step(p);
  if (step.n_partials == 0) return wait_for_kernel_before();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int stride = static_cast<int>(gridDim.x) * kWarps;
  int unit = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  RowStates next = read_states(p, step, unit, lane);
  wait_for_kernel_before();
  for (; unit < step.n_rows * p.n_heads; unit += stride) {
    const RowStates states = next;
    next = read_states(p, step, unit + stride, lane);
    if (states.n == 0) continue;
    for (int column = lane * 4; column - lane * 4 < p.head_dim; column += 128) {
      const float4 out = fold_states(p, step, states, column, lane);
      if (column < p.head_dim) store_output<T>(p, static_cast<std::int64_t>(unit) * p.head_dim + column, out);
    }
  }
}

}  // namespace

void fold_attention(const AttentionParams& params, const Device& device, bool is_f16) {
  const std::int64_t n_blocks = (static_cast<std::int64_t>(params.n_rows) * params.n_heads + kWarps - 1) / kWarps;
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>(n_blocks, 8 * device.n_multiprocessors));
  const auto launch = [&](auto* kernel) {
    prefer_shared_memory(kernel);
    launch_overlapped(device, kernel, dim3(grid), kThreads, 0, "attention_merge", params);
  };
  if (is_f16)
    launch(fold_kernel<__half>);
  else
    launch(fold_kernel<__nv_bfloat16>);
}

}  // namespace baton::cuda
