/// Norms and outputs with gates on a CUDA device.
#include "kernels/cuda/rows/rows.h"

#include <algorithm>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/rows/chunks.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
/// Threads of a head: with eight numbers each they have 128 at once, the usual size.
constexpr int kHeadThreads = 16;
constexpr int kHeadsOfBlock = kThreads / kHeadThreads;

/// Stores the first `n` of eight values, as load_some.
__device__ __forceinline__ void store_some(void* to, DType dtype, std::int64_t index, std::int64_t n, bool is_aligned,
                                           const float (&x)[kChunkDims]) {
  if (is_aligned && n >= kChunkDims) return store_chunk(to, dtype, index, x);
#pragma unroll
  for (int i = 0; i < kChunkDims; ++i)
    if (i < n) store(to, dtype, index + i, x[i]);
}

struct GatedNormParams {
  const void* x;
  DType x_dtype;
  const void* gate;
  DType gate_dtype;
  std::int64_t gate_columns;
  std::int64_t first;
  const float* weight;
  bool has_weights_of_heads;
  void* out;
  DType out_dtype;
  std::int64_t n;  ///< heads of all rows
  std::int64_t n_heads;
  std::int64_t d;
  float eps;
  bool x_is_aligned;     ///< all chunks of all heads
  bool gate_is_aligned;  ///< the same
  bool out_is_aligned;   ///< the same, and the weight's
};

__device__ __forceinline__ void multiply_by_silu(const float (&gate)[kChunkDims], float (&x)[kChunkDims]) {
#pragma unroll
  for (int j = 0; j < kChunkDims; ++j) x[j] *= gate[j] / (1.0f + expf(-gate[j]));
}

template <GatedNormOrder kOrder>
__global__ void __launch_bounds__(kThreads) gated_norm_kernel(const __grid_constant__ GatedNormParams p) {
  constexpr bool kGateFirst = kOrder == GatedNormOrder::gate_first;
  constexpr std::int64_t kStep = kHeadThreads * kChunkDims;
  let_next_kernel_start();  // a matmul reads its first weights meanwhile
  const std::int64_t head = static_cast<std::int64_t>(blockIdx.x) * kHeadsOfBlock + threadIdx.x / kHeadThreads;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x % kHeadThreads) * kChunkDims;
  const std::int64_t n = head < p.n ? p.d : 0;  // the threads of a warp stay together
  const std::int64_t begin = head * p.d;
  const std::int64_t gate_begin = head / p.n_heads * p.gate_columns + p.first + head % p.n_heads * p.d;
  const float* const weight = p.weight + (p.has_weights_of_heads && n > 0 ? head % p.n_heads * p.d : 0);
  float held_weight[kChunkDims];
  load_some(weight, DType::f32, first, n - first, p.out_is_aligned, held_weight);
  wait_for_kernel_before();
  float held[kChunkDims];
  load_some(p.x, p.x_dtype, begin + first, n - first, p.x_is_aligned, held);
  float held_gate[kChunkDims];
  load_some(p.gate, p.gate_dtype, gate_begin + first, n - first, p.gate_is_aligned, held_gate);
  if constexpr (kGateFirst) multiply_by_silu(held_gate, held);
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kChunkDims; ++j) sum = fmaf(held[j], held[j], sum);
  for (std::int64_t i = first + kStep; i < n; i += kStep) {
    float x[kChunkDims];
    load_some(p.x, p.x_dtype, begin + i, n - i, p.x_is_aligned, x);
    if constexpr (kGateFirst) {
      float gate[kChunkDims];
      load_some(p.gate, p.gate_dtype, gate_begin + i, n - i, p.gate_is_aligned, gate);
      multiply_by_silu(gate, x);
    }
#pragma unroll
    for (int j = 0; j < kChunkDims; ++j) sum = fmaf(x[j], x[j], sum);
  }
#pragma unroll
  for (int distance = kHeadThreads / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  const float factor = 1.0f / sqrtf(sum / static_cast<float>(p.d) + p.eps);
  for (std::int64_t i = first; i < n; i += kStep) {
    if (i != first) {
      load_some(p.x, p.x_dtype, begin + i, n - i, p.x_is_aligned, held);
      load_some(p.gate, p.gate_dtype, gate_begin + i, n - i, p.gate_is_aligned, held_gate);
      load_some(weight, DType::f32, i, n - i, p.out_is_aligned, held_weight);
      if constexpr (kGateFirst) multiply_by_silu(held_gate, held);
    }
    float y[kChunkDims];
#pragma unroll
    for (int j = 0; j < kChunkDims; ++j) y[j] = held[j] * factor * held_weight[j];
    if constexpr (!kGateFirst) multiply_by_silu(held_gate, y);
    store_some(p.out, p.out_dtype, begin + i, n - i, p.out_is_aligned, y);
  }
}

struct SigmoidGateParams {
  const void* x;
  DType x_dtype;
  const void* gate;
  DType gate_dtype;
  void* out;
  DType out_dtype;
  std::int64_t n;
  bool is_aligned;  ///< the first numbers; so all chunks are
};

__global__ void __launch_bounds__(kThreads) sigmoid_gate_kernel(const __grid_constant__ SigmoidGateParams p) {
  let_next_kernel_start();
  wait_for_kernel_before();
  for (std::int64_t i = (blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x) * kChunkDims; i < p.n;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads * kChunkDims) {
    float x[kChunkDims];
    float gate[kChunkDims];
    load_some(p.x, p.x_dtype, i, p.n - i, p.is_aligned, x);
    load_some(p.gate, p.gate_dtype, i, p.n - i, p.is_aligned, gate);
#pragma unroll
    for (int j = 0; j < kChunkDims; ++j) x[j] /= 1.0f + expf(-gate[j]);
    store_some(p.out, p.out_dtype, i, p.n - i, p.is_aligned, x);
  }
}

}  // namespace

void gated_norm(const Device& device, const GatedNormArgs& args) {
  const std::int64_t n_heads = args.x.shape[1];
  const std::int64_t d = args.x.shape[2];
  const std::int64_t n = args.x.shape[0] * n_heads;
  if (n == 0 || d == 0) return;
  const bool chunks_fit = d % kChunkDims == 0;
  const GatedNormParams params{
      .x = args.x.data,
      .x_dtype = args.x.dtype,
      .gate = args.gate.data,
      .gate_dtype = args.gate.dtype,
      .gate_columns = args.gate.shape[1],
      .first = args.first,
      .weight = reinterpret_cast<const float*>(args.weight.data),
      .has_weights_of_heads = args.weight.shape[0] != d,
      .out = args.out.data,
      .out_dtype = args.out.dtype,
      .n = n,
      .n_heads = n_heads,
      .d = d,
      .eps = args.eps,
      .x_is_aligned = chunks_fit && is_aligned(args.x.data, 16),
      .gate_is_aligned =
          chunks_fit && args.gate.shape[1] % kChunkDims == 0 && args.first % kChunkDims == 0 && is_aligned(args.gate.data, 16),
      .out_is_aligned = chunks_fit && is_aligned(args.weight.data, 16) && is_aligned(args.out.data, 16)};
  const auto n_blocks = static_cast<unsigned>((n + kHeadsOfBlock - 1) / kHeadsOfBlock);
  auto* kernel = args.order == GatedNormOrder::gate_first ? gated_norm_kernel<GatedNormOrder::gate_first>
                                                          : gated_norm_kernel<GatedNormOrder::norm_first>;
  prefer_shared_memory(kernel);
  launch_overlapped(device, kernel, dim3(n_blocks), kThreads, 0, "gated_norm", params);
}

void sigmoid_gate(const Device& device, const SigmoidGateArgs& args) {
  const std::int64_t n = args.out.shape.n_elements();
  if (n == 0) return;
  const SigmoidGateParams params{
      .x = args.x.data,
      .x_dtype = args.x.dtype,
      .gate = args.gate.data,
      .gate_dtype = args.gate.dtype,
      .out = args.out.data,
      .out_dtype = args.out.dtype,
      .n = n,
      .is_aligned = is_aligned(args.x.data, 16) && is_aligned(args.gate.data, 16) && is_aligned(args.out.data, 16)};
  // Eight blocks fill a multiprocessor; for more numbers each thread makes several steps.
  const std::int64_t n_steps = (n + kThreads * kChunkDims - 1) / (kThreads * kChunkDims);
  const auto n_blocks = static_cast<unsigned>(std::min<std::int64_t>(n_steps, 8LL * device.n_multiprocessors));
  prefer_shared_memory(sigmoid_gate_kernel);
  launch_overlapped(device, sigmoid_gate_kernel, dim3(n_blocks), kThreads, 0, "sigmoid_gate", params);
}

}  // namespace baton::cuda
