/// The launch that merges rows behind attention: the test of merging inside it, and what takes its place where counters are few.
#include "kernels/cuda/attention_merge.h"

#include <algorithm>

#include "kernels/cuda/attention_merge.cuh"

namespace baton::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(const __grid_constant__ AttentionParams p, int n_rows) {
  __shared__ float shared[kMergeFloats];
  const auto& sections = reinterpret_cast<const StepHeader*>(p.step)->groups[p.group];
  const auto* offsets = reinterpret_cast<const std::int32_t*>(p.step + sections.merge_offsets.offset);
  const auto* slots = reinterpret_cast<const std::int32_t*>(p.step + sections.merge_slots.offset);
  for (int i = static_cast<int>(blockIdx.x); i < n_rows * p.n_kv_heads; i += static_cast<int>(gridDim.x)) {
    const int row = i / p.n_kv_heads;
    const int begin = __ldg(offsets + row);
    const int end = __ldg(offsets + row + 1);
    if (begin == end) continue;
    merge_row<T>(p, slots + begin, end - begin, row, i % p.n_kv_heads, shared, static_cast<int>(threadIdx.x), 1);
  }
}

}  // namespace

void attention_merge(const Device& device, const AttentionMergeArgs& args) {
  check(args.kv != nullptr, "attention_merge on CUDA: no KV storage");
  AttentionParams params;
  params.step = args.step.data;
  params.group = args.group;
  params.out = args.out.data;
  params.part_o = reinterpret_cast<float*>(args.partials.o.data);
  params.part_m = reinterpret_cast<float*>(args.partials.m.data);
  params.part_l = reinterpret_cast<float*>(args.partials.l.data);
  params.n_heads = static_cast<int>(args.out.shape[1]);
  params.head_dim = static_cast<int>(args.out.shape[2]);
  params.n_kv_heads = args.kv->shape().n_kv_heads;
  params.v_scale = args.kv->shape().v_scale;
  params.out_is_f32 = args.out.dtype == DType::f32;
  const auto n_rows = static_cast<int>(args.out.shape[0]);
  const int n_blocks = std::min(n_rows * params.n_kv_heads, 8 * device.n_multiprocessors);
  if (n_blocks == 0) return;
  if (args.out.dtype == DType::f16)
    merge_kernel<__half><<<n_blocks, kMergeThreads, 0, device.stream>>>(params, n_rows);
  else
    merge_kernel<__nv_bfloat16><<<n_blocks, kMergeThreads, 0, device.stream>>>(params, n_rows);
  check_launch("attention_merge");
}

}  // namespace baton::cuda
