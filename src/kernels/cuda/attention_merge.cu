/// The launch that merges rows behind attention: the test of merging inside it, and what takes its place where counters are
/// few.
#include "kernels/cuda/attention_merge.h"

#include <algorithm>

#include "kernels/cuda/attention_merge.cuh"
#include "kernels/cuda/launch.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;

/// Rows with few slots: a warp for each row and head; with many: a block.
template <class T>
__global__ void __launch_bounds__(kThreads)
    merge_kernel(const __grid_constant__ AttentionParams p, int n_rows, int block_units) {
  __shared__ __align__(16) float shared[kMergeFloats];
  const StepArrays step(p);
  const std::int32_t* const offsets = step.merge_offsets;
  const std::int32_t* const slots = step.merge_slots;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int n_units = n_rows * p.n_heads;
  let_next_kernel_start();
  bool has_waited = false;  // what the step says is read before the wait, as it is older than the kernel before
  for (int first = static_cast<int>(blockIdx.x) * block_units; first < n_units;
       first += static_cast<int>(gridDim.x) * block_units) {
    const int mine = first + warp;
    if (warp < block_units && mine < n_units) {
      const int begin = __ldg(offsets + mine / p.n_heads);
      const int n_slots = __ldg(offsets + mine / p.n_heads + 1) - begin;
      if (lane < n_slots) asm volatile("prefetch.global.L1 [%0];" ::"l"(slots + begin + lane));
      if (!has_waited) wait_for_kernel_before();
      has_waited = true;
      if (n_slots > 0 && !wants_block(n_slots))
        merge_by_warp<T>(p, slots + begin, n_slots, mine / p.n_heads, mine % p.n_heads, lane);
    }
    if (!has_waited) wait_for_kernel_before();
    has_waited = true;
    for (int unit = first; unit < min(first + block_units, n_units); ++unit) {
      const int begin = __ldg(offsets + unit / p.n_heads);
      const int n_slots = __ldg(offsets + unit / p.n_heads + 1) - begin;
      if (n_slots > 0 && wants_block(n_slots))
        merge_by_block<T, kThreads / 32>(p, slots + begin, n_slots, unit / p.n_heads, unit % p.n_heads, shared,
                                         static_cast<int>(threadIdx.x), 1);
    }
  }
}

}  // namespace

AttentionParams merge_params(const AttentionMergeArgs& args) {
  AttentionParams params;
  params.step = args.step.data;
  params.group = args.group;
  params.out = args.out.data;
  params.part_o = reinterpret_cast<float*>(args.partials.o.data);
  params.part_m = reinterpret_cast<float*>(args.partials.m.data);
  params.part_l = reinterpret_cast<float*>(args.partials.l.data);
  params.n_heads = static_cast<int>(args.out.shape[1]);
  params.head_dim = static_cast<int>(args.out.shape[2]);
  params.out_is_f32 = args.out.dtype == DType::f32;
  return params;
}

void attention_merge(const Device& device, const AttentionMergeArgs& args) {
  const AttentionParams params = merge_params(args);
  const auto n_rows = static_cast<int>(args.out.shape[0]);
  check(params.head_dim % 4 == 0, "attention_merge on CUDA: head_dim must be a multiple of 4");
  // A block takes `block_units` rows and heads: one where there are few, so that many states are read by many blocks.
  const int n_units = n_rows * params.n_heads;
  const int block_units = n_units <= 4 * device.n_multiprocessors ? 1 : 8;
  const int n_blocks = std::min((n_units + block_units - 1) / block_units, 8 * device.n_multiprocessors);
  if (n_blocks == 0) return;
  if (args.out.dtype == DType::f16)
    launch_overlapped(device, merge_kernel<__half>, n_blocks, kThreads, 0, "attention_merge", params, n_rows, block_units);
  else
    launch_overlapped(device, merge_kernel<__nv_bfloat16>, n_blocks, kThreads, 0, "attention_merge", params, n_rows,
                      block_units);
}

}  // namespace baton::cuda
