/// Scale and soft-cap of logits on a CUDA device, in place.
#include "kernels/cuda/sampling/sampling.h"

#include <algorithm>

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;

template <int N>
__global__ void __launch_bounds__(kThreads) scale_logits_kernel(float* logits, std::int64_t n, float scale, float softcap) {
  wait_for_kernel_before();
  for (std::int64_t i = (blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x) * N; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads * N) {
    float x[N];
    load_f32(logits + i, x);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      x[j] *= scale;
      if (softcap > 0) x[j] = softcap * tanhf(x[j] / softcap);
    }
    store_f32(x, logits + i);
  }
}

}  // namespace

void scale_logits(const Device& device, const ScaleLogitsArgs& args) {
  const std::int64_t n = args.logits.shape.n_elements();
  if (n == 0) return;
  const bool is_aligned = rows_are_aligned(args.logits.shape[1], args.logits);  // the same for any number of rows
  const std::int64_t n_steps = n / (is_aligned ? kElementsAtOnce : 1);
  // Eight blocks fill a multiprocessor; for more logits each thread handles several groups.
  const auto n_blocks =
      static_cast<unsigned>(std::min<std::int64_t>((n_steps + kThreads - 1) / kThreads, 8LL * device.n_multiprocessors));
  auto* kernel = is_aligned ? scale_logits_kernel<kElementsAtOnce> : scale_logits_kernel<1>;
  launch_overlapped(device, kernel, dim3(n_blocks), kThreads, 0, "scale_logits", reinterpret_cast<float*>(args.logits.data), n,
                    args.scale, args.softcap);
}

}  // namespace baton::cuda
