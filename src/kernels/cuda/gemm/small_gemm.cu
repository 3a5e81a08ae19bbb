/// The GEMM of small weights: a block multiplies 16 rows of the weight by up to 8 rows of x. Its warps divide k and add their sums in
/// order. Weights go from memory straight to the matrix units, the first before the kernel before has ended, so a matmul that
/// takes less time than a launch costs little more than its last loads.
///
/// The order of k inside a step of 32 is free if weight and x have the same one: lane 4 g + t takes the 8 numbers from 8 t on of
/// weight rows g and g + 8 and of row g of x, one 16-byte load each, as the fragments of two multiplications.
#include "kernels/cuda/gemm/kernels.h"

#include <cstdint>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/device/warp.cuh"

namespace baton::cuda {
namespace {

static_assert(kMostSmallRows == 8, "rows of one multiplication");
constexpr int kWeightRows = 16;  ///< of a block
constexpr int kWarps = 16;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kStep = 32;    ///< numbers of k that a warp multiplies at once
constexpr int kAhead = 4;    ///< steps of a warp whose loads are in flight
constexpr int kChunk = 8;    ///< numbers of one load
constexpr int kPadding = 4;  ///< after a row of sums, so that the lanes of a warp write to different banks

struct SmallGemmParams {
  const void* x;
  const void* weight;
  const void* bias;  ///< [n], or null
  void* out;
  int n_rows;
  int n;
  int k;
  DType bias_dtype;
};

__device__ __forceinline__ float small_bias(const SmallGemmParams& p, int column) {
  switch (p.bias_dtype) {
    case DType::bf16: return to_f32(static_cast<const __nv_bfloat16*>(p.bias)[column]);
    case DType::f16: return to_f32(static_cast<const __half*>(p.bias)[column]);
    default: return static_cast<const float*>(p.bias)[column];
  }
}

/// Loads 16 bytes that are read only once.
__device__ __forceinline__ uint4 load_weight_chunk(const void* from) {
  uint4 words;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from));
  return words;
}

/// T is the type of x and of the weight.
template <class T, class Out>
__global__ void __launch_bounds__(kThreads, 1) small_gemm_kernel(const __grid_constant__ SmallGemmParams p) {
  __shared__ float of_warps[kWarps][kMostSmallRows][kWeightRows + kPadding];
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int group = thread % kWarpSize / 4;
  const int quarter = thread % 4;
  const int first = static_cast<int>(blockIdx.x) * kWeightRows;
  const int n_steps = (p.k + kStep - 1) / kStep;
  let_next_kernel_start();
  // Where this lane's numbers begin; weight rows after the last are the last.
  const auto row_of = [&](const void* matrix, int row) {
    return static_cast<const T*>(matrix) + static_cast<std::int64_t>(row) * p.k + quarter * kChunk;
  };
  const T* const low_row = row_of(p.weight, min(first + group, p.n - 1));
  const T* const high_row = row_of(p.weight, min(first + group + 8, p.n - 1));
  const T* const x_row = row_of(p.x, group);
  uint4 low[kAhead];
  uint4 high[kAhead];
  uint4 x[kAhead];
  const auto exists = [&](int step) { return step * kStep + quarter * kChunk < p.k; };
  const auto load_weight = [&](int step, int i) {
    low[i] = exists(step) ? load_weight_chunk(low_row + step * kStep) : make_uint4(0, 0, 0, 0);
    high[i] = exists(step) ? load_weight_chunk(high_row + step * kStep) : make_uint4(0, 0, 0, 0);
  };
  const auto load_x = [&](int step, int i) {
    const bool has_x = group < p.n_rows && exists(step);
    x[i] = has_x ? __ldcg(reinterpret_cast<const uint4*>(x_row + step * kStep)) : make_uint4(0, 0, 0, 0);
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load_weight(warp + i * kWarps, i);
  wait_for_kernel_before();
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load_x(warp + i * kWarps, i);
  float sums[4] = {};
  for (int begin = warp; begin < n_steps; begin += kAhead * kWarps) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::uint32_t even[4] = {low[i].x, high[i].x, low[i].y, high[i].y};
      const std::uint32_t odd[4] = {low[i].z, high[i].z, low[i].w, high[i].w};
      multiply_16x8x16<T>(sums, even, x[i].x, x[i].y);
      multiply_16x8x16<T>(sums, odd, x[i].z, x[i].w);
      const int next = begin + (i + kAhead) * kWarps;  // after the last step: zeros
      load_weight(next, i);
      load_x(next, i);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) of_warps[warp][2 * quarter + i % 2][8 * (i / 2) + group] = sums[i];
  __syncthreads();
  const int row = thread / kWeightRows;
  const int column = first + thread % kWeightRows;
  if (row >= p.n_rows || column >= p.n) return;
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += of_warps[w][row][thread % kWeightRows];
  if (p.bias != nullptr) sum += small_bias(p, column);
  static_cast<Out*>(p.out)[static_cast<std::int64_t>(row) * p.n + column] = from_f32<Out>(sum);
}

}  // namespace

bool can_multiply_small(const Device& device, const ConstTensorView& weight) {
  const std::int64_t n = weight.shape[0];
  const std::int64_t k = weight.shape[1];
  return device.compute_capability >= 90 && (weight.dtype == DType::bf16 || weight.dtype == DType::f16) && k % kChunk == 0 &&
         n <= std::int64_t{kWeightRows} * device.n_multiprocessors && k <= 1 << 20 && is_aligned(weight.data, 16);
}

void multiply_small(const Device& device, const ConstTensorView& x, const ConstTensorView& weight, const ConstTensorView& bias,
                    const TensorView& out) {
  const std::int64_t n_rows = x.shape[0];
  check(can_multiply_small(device, weight) && n_rows >= 1 && n_rows <= kMostSmallRows && x.dtype == weight.dtype &&
            is_aligned(x.data, 16) && (out.dtype == x.dtype || out.dtype == DType::f32),
        "multiply_small: a matmul that it does not take");
  const SmallGemmParams params{.x = x.data,
                               .weight = weight.data,
                               .bias = bias.data,
                               .out = out.data,
                               .n_rows = static_cast<int>(n_rows),
                               .n = static_cast<int>(weight.shape[0]),
                               .k = static_cast<int>(weight.shape[1]),
                               .bias_dtype = bias.dtype};
  const auto n_blocks = static_cast<unsigned>((params.n + kWeightRows - 1) / kWeightRows);
  visit_operands(x.dtype, out.dtype, [&]<class T, class Out>(T, Out) {
    auto* const kernel = small_gemm_kernel<T, Out>;
    prefer_shared_memory(kernel);
    launch_overlapped(device, kernel, dim3(n_blocks), kThreads, 0, "small_gemm", params);
  });
}

}  // namespace baton::cuda
