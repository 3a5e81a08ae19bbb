/// Adds what has been gathered from all ranks, in rank order; each thread adds one element at a time.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/ranks/collectives.h"

namespace baton::cuda {
namespace {

constexpr int kSumThreads = 256;
constexpr std::int64_t kMostSumBlocks = 1024;

template <class T>
__global__ void __launch_bounds__(kSumThreads) sum_parts_kernel(T* out, const T* parts, std::int64_t n, int n_ranks) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kSumThreads;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(kSumThreads) + threadIdx.x; i < n; i += step) {
    float sum = to_f32(parts[i]);
    for (int rank = 1; rank < n_ranks; ++rank) sum += to_f32(parts[rank * n + i]);
    out[i] = from_f32<T>(sum);
  }
}

}  // namespace

void sum_parts(const Device& device, const TensorView& x, const std::byte* parts, int n_ranks) {
  const std::int64_t n = x.shape.n_elements();
  if (n == 0) return;
  const auto n_blocks = static_cast<unsigned>(std::min((n + kSumThreads - 1) / kSumThreads, kMostSumBlocks));
  visit_element(x.dtype, [&]<class T>(T) {
    // NCCL's kernel comes before it, which no other kernel may overlap.
    launch_in_turn(device, sum_parts_kernel<T>, dim3(n_blocks), kSumThreads, 0, "all_reduce", reinterpret_cast<T*>(x.data),
                   reinterpret_cast<const T*>(parts), n, n_ranks);
  });
}

}  // namespace baton::cuda
