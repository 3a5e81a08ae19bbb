/// Converts elements of float tensors from one dtype to another.
#include "kernels/cuda/device/elements.h"

#include <algorithm>

#include "kernels/cuda/device/elements.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;

template <class From, class To>
__global__ void __launch_bounds__(kThreads) convert_kernel(const From* from, To* to, std::int64_t n) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads)
    to[i] = from_f32<To>(to_f32(from[i]));
}

}  // namespace

void convert(const Device& device, const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, std::int64_t n) {
  if (n == 0) return;
  // Eight blocks fill a multiprocessor; for longer tensors each thread handles several elements.
  const auto n_blocks =
      static_cast<unsigned>(std::min<std::int64_t>((n + kThreads - 1) / kThreads, 8LL * device.n_multiprocessors));
  visit_element(from_dtype, [&](auto source) {
    visit_element(to_dtype, [&](auto target) {
      using From = decltype(source);
      using To = decltype(target);
      convert_kernel<From, To>
          <<<n_blocks, kThreads, 0, device.stream>>>(reinterpret_cast<const From*>(from), reinterpret_cast<To*>(to), n);
    });
  });
  check_launch("convert");
}

}  // namespace baton::cuda
