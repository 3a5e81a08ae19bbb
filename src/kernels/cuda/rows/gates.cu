/// Norms and outputs with gates on a CUDA device.
#include "kernels/cuda/rows/rows.h"

#include <algorithm>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/f8_rows.cuh"
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
  float* out_scales;  ///< of rows in 8 bits
  std::int64_t n;     ///< heads of all rows
  std::int64_t n_heads;
  std::int64_t d;
  float eps;
  bool x_is_aligned;  ///< all chunks of all heads
  bool gate_is_aligned;
  bool weight_is_aligned;
  bool out_is_aligned;
};

__device__ __forceinline__ void multiply_by_silu(const float (&gate)[kChunkDims], float (&x)[kChunkDims]) {
#pragma unroll
  for (int j = 0; j < kChunkDims; ++j) x[j] *= gate[j] / (1.0f + expf(-gate[j]));
}

/// A thread's part of a head: its first chunks, and what computes the others.
template <GatedNormOrder kOrder>
struct GatedHead {
  /// `head` counts those of all rows; a head that `is_there` not has no elements. The threads of a warp stay together.
  __device__ __forceinline__ GatedHead(const GatedNormParams& params, std::int64_t head, bool is_there)
      : p(params),
        first(static_cast<std::int64_t>(threadIdx.x % kHeadThreads) * kChunkDims),
        n(is_there ? params.d : 0),
        begin(head * params.d),
        gate_begin(head / params.n_heads * params.gate_columns + params.first + head % params.n_heads * params.d),
        weight_begin(params.has_weights_of_heads && is_there ? head % params.n_heads * params.d : 0) {}

  __device__ __forceinline__ void load_weight(std::int64_t i) {
    load_some(p.weight, DType::f32, weight_begin + i, n - i, p.weight_is_aligned, weight);
  }
  __device__ __forceinline__ void load(std::int64_t i) {
    load_some(p.x, p.x_dtype, begin + i, n - i, p.x_is_aligned, x);
    load_some(p.gate, p.gate_dtype, gate_begin + i, n - i, p.gate_is_aligned, gate);
  }

  /// Calls `use(i, y)` with the thread's chunks of outputs from column i of the head on. The first chunks are loaded.
  template <class Use>
  __device__ __forceinline__ void normalize(Use&& use) {
    constexpr bool kGateFirst = kOrder == GatedNormOrder::gate_first;
    constexpr std::int64_t kStep = kHeadThreads * kChunkDims;
    if constexpr (kGateFirst) multiply_by_silu(gate, x);
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kChunkDims; ++j) sum = fmaf(x[j], x[j], sum);
    for (std::int64_t i = first + kStep; i < n; i += kStep) {
      float more[kChunkDims];
      load_some(p.x, p.x_dtype, begin + i, n - i, p.x_is_aligned, more);
      if constexpr (kGateFirst) {
        float its_gate[kChunkDims];
        load_some(p.gate, p.gate_dtype, gate_begin + i, n - i, p.gate_is_aligned, its_gate);
        multiply_by_silu(its_gate, more);
      }
#pragma unroll
      for (int j = 0; j < kChunkDims; ++j) sum = fmaf(more[j], more[j], sum);
    }
#pragma unroll
    for (int distance = kHeadThreads / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    const float factor = 1.0f / sqrtf(sum / static_cast<float>(p.d) + p.eps);
    for (std::int64_t i = first; i < n; i += kStep) {
      if (i != first) {
        load(i);
        load_weight(i);
        if constexpr (kGateFirst) multiply_by_silu(gate, x);
      }
      float y[kChunkDims];
#pragma unroll
      for (int j = 0; j < kChunkDims; ++j) y[j] = x[j] * factor * weight[j];
      if constexpr (!kGateFirst) multiply_by_silu(gate, y);
      use(i, y);
    }
  }

  const GatedNormParams& p;
  std::int64_t first;  ///< its first column of the head
  std::int64_t n;
  std::int64_t begin;
  std::int64_t gate_begin;
  std::int64_t weight_begin;
  float x[kChunkDims];
  float gate[kChunkDims];
  float weight[kChunkDims];
};

template <GatedNormOrder kOrder>
__global__ void __launch_bounds__(kThreads) gated_norm_kernel(const __grid_constant__ GatedNormParams p) {
  let_next_kernel_start();  // a matmul reads its first weights meanwhile
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kHeadsOfBlock + threadIdx.x / kHeadThreads;
  GatedHead<kOrder> head(p, index, index < p.n);
  head.load_weight(head.first);
  wait_for_kernel_before();
  head.load(head.first);
  head.normalize([&](std::int64_t i, const float(&y)[kChunkDims]) {
    store_some(p.out, p.out_dtype, head.begin + i, head.n - i, p.out_is_aligned, y);
  });
}

/// Heads of a row that a block in 8 bits has at once: a group of threads loads two before it needs the first.
constexpr int kF8HeadsOfGroup = 2;
constexpr int kF8GroupsOfBlock = kF8RowThreads / kHeadThreads;
/// Columns that a thread rounds at once. They are read from shared memory without bank conflicts.
constexpr int kF8Quad = 4;

/// A block has a row, in f32 in shared memory until its scale is known.
template <GatedNormOrder kOrder>
__global__ void __launch_bounds__(kF8RowThreads, 2) gated_norm_f8_kernel(const __grid_constant__ GatedNormParams p) {
  extern __shared__ float4 shared_row[];
  __shared__ float of_warps[kF8RowThreads / kWarpSize];
  auto* const row = reinterpret_cast<float*>(shared_row);
  const std::int64_t width = p.n_heads * p.d;
  const bool chunks_fit = p.d % kChunkDims == 0;
  let_next_kernel_start();
  wait_for_kernel_before();
  float most = 0;
  for (std::int64_t h = 0; h < p.n_heads; h += kF8HeadsOfGroup * kF8GroupsOfBlock) {
    const std::int64_t of_group = h + threadIdx.x / kHeadThreads;
    const auto head_of = [&](std::int64_t in_row) {
      return GatedHead<kOrder>(p, blockIdx.x * p.n_heads + in_row, in_row < p.n_heads);
    };
    GatedHead<kOrder> heads[kF8HeadsOfGroup]{head_of(of_group), head_of(of_group + kF8GroupsOfBlock)};
#pragma unroll
    for (auto& head : heads) {
      head.load(head.first);
      head.load_weight(head.first);
    }
#pragma unroll
    for (auto& head : heads)
      head.normalize([&](std::int64_t i, const float(&y)[kChunkDims]) {
#pragma unroll
        for (int j = 0; j < kChunkDims; ++j) most = fmaxf(most, fabsf(y[j]));
        store_some(row, DType::f32, head.begin - blockIdx.x * width + i, head.n - i, chunks_fit, y);
      });
  }
  const F8Scale of_row(block_join(most, of_warps, [](float a, float b) { return fmaxf(a, b); }));  // the row is complete, too
  if (threadIdx.x == 0) p.out_scales[blockIdx.x] = of_row.scale;
  auto* const out = static_cast<std::uint8_t*>(p.out) + blockIdx.x * width;
  for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * kF8Quad; i < width; i += kF8RowThreads * kF8Quad) {
    const float4 quad = shared_row[i / kF8Quad];
    const float values[kF8Quad] = {quad.x, quad.y, quad.z, quad.w};
    store_f8(values, of_row.factor, out, i);
  }
}

struct SigmoidGateParams {
  const void* x;
  DType x_dtype;
  const void* gate;
  DType gate_dtype;
  void* out;
  DType out_dtype;
  float* out_scales;  ///< of rows in 8 bits
  std::int64_t n;     ///< numbers of all rows, in 8 bits of a row
  bool is_aligned;    ///< the first numbers; so all chunks are
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

__global__ void __launch_bounds__(kF8RowThreads, 2) sigmoid_gate_f8_kernel(const __grid_constant__ SigmoidGateParams p) {
  let_next_kernel_start();
  wait_for_kernel_before();
  const std::int64_t begin = blockIdx.x * p.n;
  round_row(p.n, static_cast<std::uint8_t*>(p.out) + begin, p.out_scales + blockIdx.x,
            [&](std::int64_t i, float(&values)[kF8RowColumns]) {
#pragma unroll
              for (int c = 0; c < kF8RowColumns; c += kChunkDims) {
                float x[kChunkDims];
                float gate[kChunkDims];
                load_chunk(p.x, p.x_dtype, begin + i + c, x);
                load_chunk(p.gate, p.gate_dtype, begin + i + c, gate);
#pragma unroll
                for (int j = 0; j < kChunkDims; ++j) values[c + j] = x[j] / (1.0f + expf(-gate[j]));
              }
            });
}

/// Launches a block for each row in 8 bits, whose kernel keeps `shared_bytes` of it.
template <class Params>
void launch_f8_rows(const Device& device, void (*kernel)(Params), std::int64_t n_rows, std::int64_t width,
                    std::int64_t shared_bytes, const char* what, const Params& params) {
  check(is_aligned(params.out, 16) && width % kF8Block == 0,
        "gates: rows in 8 bits must be aligned and have a multiple of 64 columns");
  prefer_shared_memory(kernel);
  const auto bytes = static_cast<int>(shared_bytes);
  if (bytes > 0) check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), what);
  launch_overlapped(device, kernel, dim3(static_cast<unsigned>(n_rows)), kF8RowThreads, bytes, what, params);
}

}  // namespace

void gated_norm(const Device& device, const GatedNormArgs& args) {
  const std::int64_t n_heads = args.x.shape[1];
  const std::int64_t d = args.x.shape[2];
  const std::int64_t n = args.x.shape[0] * n_heads;
  if (n == 0 || d == 0) return;
  const bool chunks_fit = d % kChunkDims == 0;
  const GatedNormParams params{.x = args.x.data,
                               .x_dtype = args.x.dtype,
                               .gate = args.gate.data,
                               .gate_dtype = args.gate.dtype,
                               .gate_columns = args.gate.shape[1],
                               .first = args.first,
                               .weight = reinterpret_cast<const float*>(args.weight.data),
                               .has_weights_of_heads = args.weight.shape[0] != d,
                               .out = args.out.data,
                               .out_dtype = args.out.dtype,
                               .out_scales = reinterpret_cast<float*>(args.out_scales.data),
                               .n = n,
                               .n_heads = n_heads,
                               .d = d,
                               .eps = args.eps,
                               .x_is_aligned = chunks_fit && is_aligned(args.x.data, 16),
                               .gate_is_aligned = chunks_fit && args.gate.shape[1] % kChunkDims == 0 &&
                                                  args.first % kChunkDims == 0 && is_aligned(args.gate.data, 16),
                               .weight_is_aligned = chunks_fit && is_aligned(args.weight.data, 16),
                               .out_is_aligned = chunks_fit && is_aligned(args.out.data, 16)};
  const bool is_gate_first = args.order == GatedNormOrder::gate_first;
  if (args.out.dtype == DType::f8_e4m3) {
    const std::int64_t width = n_heads * d;
    return launch_f8_rows(
        device,
        is_gate_first ? gated_norm_f8_kernel<GatedNormOrder::gate_first> : gated_norm_f8_kernel<GatedNormOrder::norm_first>,
        args.x.shape[0], width, width * static_cast<std::int64_t>(sizeof(float)), "gated_norm", params);
  }
  const auto n_blocks = static_cast<unsigned>((n + kHeadsOfBlock - 1) / kHeadsOfBlock);
  auto* kernel = is_gate_first ? gated_norm_kernel<GatedNormOrder::gate_first> : gated_norm_kernel<GatedNormOrder::norm_first>;
  prefer_shared_memory(kernel);
  launch_overlapped(device, kernel, dim3(n_blocks), kThreads, 0, "gated_norm", params);
}

void sigmoid_gate(const Device& device, const SigmoidGateArgs& args) {
  const std::int64_t n = args.out.shape.n_elements();
  if (n == 0) return;
  const bool in_8_bits = args.out.dtype == DType::f8_e4m3;
  const SigmoidGateParams params{
      .x = args.x.data,
      .x_dtype = args.x.dtype,
      .gate = args.gate.data,
      .gate_dtype = args.gate.dtype,
      .out = args.out.data,
      .out_dtype = args.out.dtype,
      .out_scales = reinterpret_cast<float*>(args.out_scales.data),
      .n = in_8_bits ? args.out.shape[1] : n,
      .is_aligned = is_aligned(args.x.data, 16) && is_aligned(args.gate.data, 16) && is_aligned(args.out.data, 16)};
  if (in_8_bits) {
    check(params.is_aligned, "sigmoid_gate: inputs of rows in 8 bits must be aligned");
    return launch_f8_rows(device, sigmoid_gate_f8_kernel, args.out.shape[0], args.out.shape[1], 0, "sigmoid_gate", params);
  }
  // Eight blocks fill a multiprocessor; for more numbers each thread makes several steps.
  const std::int64_t n_steps = (n + kThreads * kChunkDims - 1) / (kThreads * kChunkDims);
  const auto n_blocks = static_cast<unsigned>(std::min<std::int64_t>(n_steps, 8LL * device.n_multiprocessors));
  prefer_shared_memory(sigmoid_gate_kernel);
  launch_overlapped(device, sigmoid_gate_kernel, dim3(n_blocks), kThreads, 0, "sigmoid_gate", params);
}

}  // namespace baton::cuda
