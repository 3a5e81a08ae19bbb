/// The norm of some columns on a CUDA device, one block for each row.
#include "kernels/cuda/rows/rows.h"

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/f8_rows.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/rows/chunks.cuh"

namespace baton::cuda {
namespace {

/// Threads of a block. The number is fixed, so that the sum of a row always has the same order.
constexpr int kThreads = 256;

struct NormColumnsParams {
  const void* x;
  DType x_dtype;
  std::int64_t x_columns;
  std::int64_t first;
  const float* weight;
  void* out;
  DType out_dtype;
  float* out_scales;
  std::int64_t n;
  float eps;
  bool x_is_aligned;    ///< all chunks of all rows
  bool out_is_aligned;  ///< the same, and the weight's
};

__global__ void __launch_bounds__(kThreads) norm_columns_kernel(const __grid_constant__ NormColumnsParams p) {
  __shared__ float of_warps[kThreads / kWarpSize];
  constexpr std::int64_t kStep = kThreads * kChunkDims;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * kChunkDims;
  const std::int64_t x_begin = blockIdx.x * p.x_columns + p.first;
  const std::int64_t out_begin = blockIdx.x * p.n;
  const auto load_x = [&](std::int64_t i, float(&x)[kChunkDims]) {
    load_some(p.x, p.x_dtype, x_begin + i, p.n - i, p.x_is_aligned, x);
  };
  let_next_kernel_start();  // a matmul reads its first weights meanwhile
  float held_weight[kChunkDims];
  load_some(p.weight, DType::f32, first, p.n - first, p.out_is_aligned, held_weight);
  wait_for_kernel_before();
  float held[kChunkDims];
  load_x(first, held);
  float sum = 0;
  const auto add = [&](const float(&x)[kChunkDims]) {
#pragma unroll
    for (int j = 0; j < kChunkDims; ++j) sum += x[j] * x[j];
  };
  add(held);
  for (std::int64_t i = first + kStep; i < p.n; i += kStep) {
    float x[kChunkDims];
    load_x(i, x);
    add(x);
  }
  sum = block_join(sum, of_warps, [](float a, float b) { return a + b; });
  const float factor = 1.0f / sqrtf(sum / static_cast<float>(p.n) + p.eps);
  /// Calls `use` with each of the thread's chunks of outputs.
  const auto for_all = [&](auto&& use) {
    for (std::int64_t i = first; i < p.n; i += kStep) {
      float x[kChunkDims];
      float weight[kChunkDims];
      if (i != first) {
        load_x(i, x);
        load_some(p.weight, DType::f32, i, p.n - i, p.out_is_aligned, weight);
      }
#pragma unroll
      for (int j = 0; j < kChunkDims; ++j) x[j] = i == first ? held[j] * factor * held_weight[j] : x[j] * factor * weight[j];
      use(i, x);
    }
  };
  if (p.out_dtype != DType::f8_e4m3)
    return for_all([&](std::int64_t i, const float(&x)[kChunkDims]) {
      if (p.out_is_aligned) return store_chunk(p.out, p.out_dtype, out_begin + i, x);
#pragma unroll
      for (int j = 0; j < kChunkDims; ++j)
        if (i + j < p.n) store(p.out, p.out_dtype, out_begin + i + j, x[j]);
    });
  float most = 0;
  for_all([&](std::int64_t /*i*/, const float(&x)[kChunkDims]) {
#pragma unroll
    for (int j = 0; j < kChunkDims; ++j) most = fmaxf(most, fabsf(x[j]));
  });
  const F8Scale of_row(block_join(most, of_warps, [](float a, float b) { return fmaxf(a, b); }));
  if (threadIdx.x == 0) p.out_scales[blockIdx.x] = of_row.scale;
  auto* const out = static_cast<std::uint8_t*>(p.out) + out_begin;
  for_all([&](std::int64_t i, const float(&x)[kChunkDims]) { store_f8(x, of_row.factor, out, i); });
}

}  // namespace

void norm_columns(const Device& device, const NormColumnsArgs& args) {
  const auto n_rows = static_cast<unsigned>(args.x.shape[0]);
  const std::int64_t n = args.out.shape[1];
  if (n_rows == 0 || n == 0) return;
  const NormColumnsParams params{
      .x = args.x.data,
      .x_dtype = args.x.dtype,
      .x_columns = args.x.shape[1],
      .first = args.first,
      .weight = reinterpret_cast<const float*>(args.weight.data),
      .out = args.out.data,
      .out_dtype = args.out.dtype,
      .out_scales = reinterpret_cast<float*>(args.out_scales.data),
      .n = n,
      .eps = args.eps,
      .x_is_aligned = args.x.shape[1] % kChunkDims == 0 && args.first % kChunkDims == 0 && is_aligned(args.x.data, 16),
      .out_is_aligned = n % kChunkDims == 0 && is_aligned(args.weight.data, 16) && is_aligned(args.out.data, 16)};
  check(args.out.dtype != DType::f8_e4m3 || (params.out_is_aligned && n % kF8Block == 0),
        "norm_columns: rows in 8 bits must be aligned and have a multiple of 64 columns");
  prefer_shared_memory(norm_columns_kernel);
  launch_overlapped(device, norm_columns_kernel, dim3(n_rows), kThreads, 0, "norm_columns", params);
}

}  // namespace baton::cuda
