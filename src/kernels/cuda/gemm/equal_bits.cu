#include "kernels/cuda/gemm/kernels.h"

#include <cuda_runtime.h>

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    compare_kernel(const std::uint32_t* a, const std::uint32_t* b, std::size_t n, std::uint32_t* differs) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(kThreads) + threadIdx.x; i < n;
       i += static_cast<std::size_t>(gridDim.x) * kThreads)
    if (a[i] != b[i]) *differs = 1;
}

}  // namespace

bool equal_bits(const Device& device, const std::byte* a, const std::byte* b, std::size_t n_bytes, std::byte* flag) {
  check(n_bytes % 4 == 0, "equal_bits: not a multiple of 4 bytes");
  std::uint32_t differs = 0;
  check_cuda(cudaMemsetAsync(flag, 0, sizeof(differs), device.stream), "equal_bits");
  const auto n_blocks = static_cast<unsigned>(8 * device.n_multiprocessors);
  compare_kernel<<<n_blocks, kThreads, 0, device.stream>>>(reinterpret_cast<const std::uint32_t*>(a),
                                                           reinterpret_cast<const std::uint32_t*>(b), n_bytes / 4,
                                                           reinterpret_cast<std::uint32_t*>(flag));
  check_launch("equal_bits");
  check_cuda(cudaMemcpyAsync(&differs, flag, sizeof(differs), cudaMemcpyDeviceToHost, device.stream), "equal_bits");
  check_cuda(cudaStreamSynchronize(device.stream), "equal_bits");
  return differs == 0;
}

}  // namespace baton::cuda
