/// The kernel that merges partial states, launched after attention.
#include "kernels/cuda/attention/merge/merge.h"

#include <algorithm>

#include "kernels/cuda/attention/invariant/invariant.h"
#include "kernels/cuda/attention/merge/merge.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"

namespace baton::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kMergeThreads, 5) merge_kernel(const __grid_constant__ AttentionParams p) {
  __shared__ __align__(16) std::uint32_t shared[kMergeWords];
  let_next_kernel_start();
  const StepArrays step(p);
  if (step.n_partials == 0) return wait_for_kernel_before();
  Merger<T, 1> merger(p, step, static_cast<int>(gridDim.x), shared, static_cast<int>(threadIdx.x));
  // The step was uploaded before the kernel before started, so it may be read already.
  merger.run(static_cast<int>(blockIdx.x), [] { wait_for_kernel_before(); });
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
  params.n_rows = static_cast<int>(args.out.shape[0]);
  params.n_heads = static_cast<int>(args.out.shape[1]);
  params.head_dim = static_cast<int>(args.out.shape[2]);
  params.out_is_f32 = args.out.dtype == DType::f32;
  params.sinks = reinterpret_cast<const float*>(args.sinks.data);
  return params;
}

void attention_merge(const Device& device, const AttentionMergeArgs& args, bool batch_invariant) {
  const AttentionParams params = merge_params(args);
  check(params.head_dim % 4 == 0, "attention_merge on CUDA: head_dim must be a multiple of 4");
  if (params.n_rows == 0) return;
  if (batch_invariant) return fold_attention(params, device, args.out.dtype == DType::f16);
  const std::int64_t n_units = static_cast<std::int64_t>(params.n_rows) * params.n_heads;
  const bool is_by_group = n_units <= kFewUnits;
  const std::int64_t n_groups = is_by_group ? n_units * merge_parts(static_cast<int>(n_units), params.head_dim)
                                            : (n_units + kMergeWarps - 1) / kMergeWarps;
  const auto n_blocks = static_cast<int>(std::min<std::int64_t>(n_groups, 4 * device.n_multiprocessors));
  const auto launch = [&](auto* kernel) {
    prefer_shared_memory(kernel);
    launch_overlapped(device, kernel, dim3(static_cast<unsigned>(n_blocks)), kMergeThreads, 0, "attention_merge", params);
  };
  if (args.out.dtype == DType::f16)
    launch(merge_kernel<__half>);
  else
    launch(merge_kernel<__nv_bfloat16>);
}

}  // namespace baton::cuda
