// How fast is a matrix for each head (head_matmul: W_UK and W_UV of multi-head latent attention), by either kernel?
//
//     nvcc -O3 -std=c++20 -gencode arch=compute_90a,code=sm_90a -lineinfo --expt-relaxed-constexpr --diag-suppress=554 -Isrc
//          -cudart static -o 08_head_matmul workshop/08_head_matmul.cu src/kernels/cuda/heads/*.cu
//     ./08_head_matmul
//
// Checks the product's kernels against float64 and against each other, bit by bit, then times them for 1 to 2048 rows. A replay
// goes through copies of the weights that exceed the L2.
#include <cmath>
#include <random>

#include <cuda_bf16.h>

#include "kernels/cuda/heads/kernel.h"
#include "measure.cuh"

namespace {

using baton::DType;
using baton::cuda::Device;
using baton::cuda::HeadMatmulParams;
using workshop::check_cuda;

using Kernel = void (*)(const Device&, DType, const HeadMatmulParams&);
constexpr std::pair<const char*, Kernel> kKernels[] = {{"narrow", baton::cuda::head_matmul_narrow},
                                                       {"wide", baton::cuda::head_matmul_wide}};

struct Sizes {
  int n_heads, n, k, x_stride, out_stride;
};

template <class T>
T* device_memory(std::size_t n) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, n * sizeof(T)), "cudaMalloc");
  return static_cast<T*>(memory);
}

struct Problem {
  Problem(const Sizes& sizes, int n_rows, int n_copies, std::mt19937& random)
      : x(static_cast<std::size_t>(n_rows) * sizes.n_heads * sizes.x_stride),
        weights(static_cast<std::size_t>(sizes.n_heads) * sizes.n * sizes.k) {
    std::uniform_real_distribution<float> any(-1, 1);
    for (auto* list : {&x, &weights})
      for (__nv_bfloat16& number : *list) number = __float2bfloat16(any(random));
    auto* const device_x = device_memory<__nv_bfloat16>(x.size());
    check_cuda(cudaMemcpy(device_x, x.data(), x.size() * 2, cudaMemcpyHostToDevice), "copy");
    auto* const device_weights = device_memory<__nv_bfloat16>(weights.size() * n_copies);
    for (int i = 0; i < n_copies; ++i)
      check_cuda(cudaMemcpy(device_weights + i * weights.size(), weights.data(), weights.size() * 2, cudaMemcpyHostToDevice),
                 "copy");
    out_elements = static_cast<std::size_t>(n_rows) * sizes.n_heads * sizes.out_stride;
    auto* const out = device_memory<float>(out_elements);
    params = {.x = device_x,
              .weights = device_weights,
              .out = out,
              .x_columns = static_cast<std::int64_t>(sizes.n_heads) * sizes.x_stride,
              .x_stride = sizes.x_stride,
              .out_columns = static_cast<std::int64_t>(sizes.n_heads) * sizes.out_stride,
              .out_stride = sizes.out_stride,
              .n_rows = n_rows,
              .n_heads = sizes.n_heads,
              .n = sizes.n,
              .k = sizes.k,
              .out_is_f32 = false};
  }
  ~Problem() {
    cudaFree(const_cast<void*>(params.x));
    cudaFree(const_cast<void*>(params.weights));
    cudaFree(params.out);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  std::vector<__nv_bfloat16> x;
  std::vector<__nv_bfloat16> weights;
  std::size_t out_elements;
  HeadMatmulParams params;
};

void check(const Device& device, const Sizes& sizes, int n_rows) {
  std::mt19937 random(7);
  Problem problem(sizes, n_rows, 1, random);
  for (const bool is_f32 : {false, true}) {
    problem.params.out_is_f32 = is_f32;
    const std::size_t n_bytes = problem.out_elements * (is_f32 ? 4 : 2);
    std::vector<std::vector<std::byte>> outs;
    for (const auto& [name, kernel] : kKernels) {
      check_cuda(cudaMemset(problem.params.out, 0, problem.out_elements * 4), "clear");
      kernel(device, DType::bf16, problem.params);
      check_cuda(cudaStreamSynchronize(device.stream), name);
      outs.emplace_back(n_bytes);
      check_cuda(cudaMemcpy(outs.back().data(), problem.params.out, n_bytes, cudaMemcpyDeviceToHost), "copy");
    }
    if (outs[0] != outs[1]) std::printf("WRONG RESULT: the kernels differ, n %d, k %d, %d rows\n", sizes.n, sizes.k, n_rows);
    double worst = 0;
    for (int sample = 0; sample < 4000; ++sample) {
      const std::size_t row = sample < n_rows ? sample : random() % n_rows;
      const std::size_t head = random() % sizes.n_heads;
      const std::size_t j = random() % sizes.out_stride;
      double sum = 0;
      for (int i = 0; j < static_cast<std::size_t>(sizes.n) && i < sizes.k; ++i)
        sum += static_cast<double>(__bfloat162float(problem.x[(row * sizes.n_heads + head) * sizes.x_stride + i])) *
               __bfloat162float(problem.weights[(head * sizes.n + j) * sizes.k + i]);
      const std::size_t at = (row * sizes.n_heads + head) * sizes.out_stride + j;
      const double got = is_f32 ? reinterpret_cast<const float*>(outs[0].data())[at]
                                : __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(outs[0].data())[at]);
      const double error = std::abs(got - sum) / (1 + std::abs(sum));
      if (!(error <= worst)) worst = error;
    }
    const bool is_right = worst < (is_f32 ? 2e-5 : 5e-3);
    std::printf("check %3d heads of %3d x %3d, %4d rows, %s: largest error %.1e %s\n", sizes.n_heads, sizes.n, sizes.k, n_rows,
                is_f32 ? "f32 " : "bf16", worst, is_right ? "ok" : "WRONG RESULT");
  }
}

}  // namespace

int main() {
  Device device;
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, 0), "device");
  device.compute_capability = 90;
  device.n_multiprocessors = properties.multiProcessorCount;
  check_cuda(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking), "stream");
  std::printf("%s\n", properties.name);
  for (const int n_rows : {1, 17, 64, 65, 200})
    for (const Sizes& sizes : {Sizes{20, 512, 192, 256, 576}, Sizes{20, 256, 512, 512, 256}, Sizes{3, 72, 40, 48, 80}})
      check(device, sizes, n_rows);
  struct Shape {
    const char* label;
    Sizes sizes;
  };
  for (const Shape& shape : {Shape{"20 heads, W_UK 512 x 192", {20, 512, 192, 256, 576}},
                             Shape{"20 heads, W_UV 256 x 512", {20, 256, 512, 512, 256}},
                             Shape{"128 heads, W_UK 512 x 128", {128, 512, 128, 192, 576}},
                             Shape{"128 heads, W_UV 128 x 512", {128, 128, 512, 512, 128}}}) {
    for (const auto& [name, kernel] : kKernels) {
      std::printf("%-26s %-6s", shape.label, name);
      for (const int n_rows : {1, 8, 32, 64, 128, 256, 512, 2048}) {
        if (kernel == baton::cuda::head_matmul_narrow && n_rows > 512) continue;
        std::mt19937 random(7);
        const double weight_bytes = 2.0 * shape.sizes.n_heads * shape.sizes.n * shape.sizes.k;
        const int n_copies = static_cast<int>(128e6 / weight_bytes) + 1;
        Problem problem(shape.sizes, n_rows, n_copies, random);
        const auto timing = workshop::time_graph(
            device.stream, n_copies,
            [&, kernel = kernel](cudaStream_t, int i) {
              HeadMatmulParams params = problem.params;
              params.weights = static_cast<const std::byte*>(params.weights) + i * static_cast<std::size_t>(weight_bytes);
              kernel(device, DType::bf16, params);
            },
            {}, 9);
        if (n_rows < 128)
          std::printf(" | %d: %.2f us, %.0f GB/s", n_rows, timing.us, weight_bytes / timing.us / 1e3);
        else
          std::printf(" | %d: %.1f us, %.0f TF", n_rows, timing.us, weight_bytes * n_rows / timing.us / 1e6);
      }
      std::printf("\n");
    }
  }
  return 0;
}
