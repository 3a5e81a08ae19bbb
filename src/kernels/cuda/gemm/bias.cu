/// Adds biases after matmuls; the threads of a fixed grid loop over the elements.
#include "kernels/cuda/gemm/kernels.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;

template <class Out, class Bias>
__global__ void __launch_bounds__(kThreads)
    add_bias_kernel(Out* out, const Bias* bias, std::int64_t n_elements, std::int64_t n) {
  wait_for_kernel_before();
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; i < n_elements;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads)
    out[i] = from_f32<Out>(to_f32(out[i]) + to_f32(bias[i % n]));
}

}  // namespace

void add_bias(const Device& device, const TensorView& out, const ConstTensorView& bias) {
  const std::int64_t n_elements = out.shape.n_elements();
  if (n_elements == 0) return;
  // Eight blocks fill a multiprocessor; for longer tensors each thread handles several elements.
  const auto n_blocks =
      static_cast<unsigned>(std::min<std::int64_t>((n_elements + kThreads - 1) / kThreads, 8LL * device.n_multiprocessors));
  visit_element(out.dtype, [&](auto to) {
    visit_element(bias.dtype, [&](auto from) {
      using Out = decltype(to);
      using Bias = decltype(from);
      launch_overlapped(device, add_bias_kernel<Out, Bias>, dim3(n_blocks), kThreads, 0, "add_bias",
                        reinterpret_cast<Out*>(out.data), reinterpret_cast<const Bias*>(bias.data), n_elements, bias.shape[0]);
    });
  });
}

}  // namespace baton::cuda
