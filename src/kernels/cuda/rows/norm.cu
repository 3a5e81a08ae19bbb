/// Norms on a CUDA device, computed in f32, one block for each row.
#include "kernels/cuda/rows/rows.h"

#include <type_traits>

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/f8_rows.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/device/warp.cuh"

namespace baton::cuda {
namespace {

/// Threads of a block. The number is fixed, so that the sum of a row always has the same order.
constexpr int kThreads = 512;
/// Loads that a thread has in flight at once, of short and of long rows. Their elements stay in registers between the passes,
/// so that a row of up to 8192 elements is read from memory once. Two loads leave registers for two blocks of a
/// multiprocessor, of which one reads while the other waits for the sum of its row.
constexpr int kHeldOfShort = 2;
constexpr int kHeldOfLong = 4;
constexpr int kBlocksOfShort = 2;

/// post is an RMS norm whose delta may have a norm of its own and whose weight may be missing. It is a kind of its own
/// so that the others need no registers for that.
enum class Kind { rms, layer, post };

/// Out of rows in 8 bits.
using F8 = std::uint8_t;

struct NormParams {
  float* x;
  const void* delta;          ///< of type Delta, or null
  const void* second_delta;   ///< of type Delta, or null
  const float* delta_weight;  ///< or null
  const float* weight;        ///< for Kind::post or null
  const float* bias;          ///< or null
  void* out;
  float* out_scales;  ///< of rows in 8 bits
  void* wide_out;     ///< beside rows in 8 bits, or null
  DType wide_dtype;
  std::int64_t d;
  float eps;
  float delta_scale;
  float delta_eps;
};

/// Stores adjacent elements, aligned to their total size, of a dtype that is known at run time.
template <int N>
__device__ __forceinline__ void store_as(DType dtype, const float (&values)[N], void* to, std::int64_t i) {
  switch (dtype) {
    case DType::bf16: return store_f32(values, static_cast<__nv_bfloat16*>(to) + i);
    case DType::f16: return store_f32(values, static_cast<__half*>(to) + i);
    default: return store_f32(values, static_cast<float*>(to) + i);
  }
}

/// Stores a row: `values`, which the thread holds from column `first` on, and what for_others(use) computes.
template <class Out, int N, int kHeld, class ForOthers>
__device__ __forceinline__ void store_row(const NormParams& params, std::int64_t first, const float (&values)[kHeld][N],
                                          float* of_warps, ForOthers&& for_others) {
  constexpr std::int64_t kStep = kThreads * N;
  auto* const out = static_cast<Out*>(params.out) + blockIdx.x * params.d;
  const auto for_all = [&](auto&& use) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h)
      if (first + h * kStep < params.d) use(first + h * kStep, values[h]);
    for_others(use);
  };
  if constexpr (std::is_same_v<Out, F8>) {
    float most = 0;
    for_all([&](std::int64_t i, const float(&value)[N]) {
#pragma unroll
      for (int j = 0; j < N; ++j) most = fmaxf(most, fabsf(value[j]));
      if (params.wide_out != nullptr) store_as(params.wide_dtype, value, params.wide_out, blockIdx.x * params.d + i);
    });
    const F8Scale of_row(block_join(most, of_warps, [](float a, float b) { return fmaxf(a, b); }));
    if (threadIdx.x == 0) params.out_scales[blockIdx.x] = of_row.scale;
    for_all([&](std::int64_t i, const float(&value)[N]) { store_f8(value, of_row.factor, out, i); });
  } else {
    for_all([&](std::int64_t i, const float(&value)[N]) { store_f32(value, out + i); });
  }
}

template <Kind kKind, class Delta, class Out, int N, int kHeld>
__global__ void __launch_bounds__(kThreads, kHeld == kHeldOfShort ? kBlocksOfShort : 1) norm_kernel(const NormParams params) {
  __shared__ float of_warps[kThreads / kWarpSize];
  constexpr std::int64_t kStep = kThreads * N;
  float* x = params.x + blockIdx.x * params.d;
  const auto* delta = static_cast<const Delta*>(params.delta) + blockIdx.x * params.d;
  const auto* second_delta = static_cast<const Delta*>(params.second_delta) + blockIdx.x * params.d;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * N;
  const auto sum_over_block = [&](float sum) { return block_join(sum, of_warps, [](float a, float b) { return a + b; }); };
  float values[kHeld][N] = {};
  float weights[kHeld][N];
  float added[kHeld][N] = {};
  float delta_weights[kHeld][N];
  const auto load_weights = [&](std::int64_t i, float(&of_out)[N], float(&of_delta)[N]) {
    if constexpr (kKind == Kind::post) {
#pragma unroll
      for (int j = 0; j < N; ++j) of_out[j] = of_delta[j] = 1;
      if (params.weight != nullptr) load_f32(params.weight + i, of_out);
      if (params.delta_weight != nullptr) load_f32(params.delta_weight + i, of_delta);
    } else {
      load_f32(params.weight + i, of_out);
    }
  };
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const std::int64_t i = first + h * kStep;
    if (i < params.d) load_weights(i, weights[h], delta_weights[h]);
  }
  let_next_kernel_start();  // a matmul reads its first weights meanwhile
  wait_for_kernel_before();
  const auto add_second = [&](std::int64_t i, float(&sum)[N]) {
    if (params.second_delta == nullptr) return;
    float more[N];
    load_f32(second_delta + i, more);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += more[j];
  };
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const std::int64_t i = first + h * kStep;
    if (i >= params.d) continue;
    load_f32(x + i, values[h]);
    if (params.delta != nullptr) load_f32(delta + i, added[h]);
  }
  float delta_factor = params.delta_scale;
  if constexpr (kKind == Kind::post) {
    if (params.delta_weight != nullptr) {
      float squares = 0;
#pragma unroll
      for (int h = 0; h < kHeld; ++h)
#pragma unroll
        for (int j = 0; j < N; ++j) squares += added[h][j] * added[h][j];
      for (std::int64_t i = first + kHeld * kStep; i < params.d; i += kStep) {
        float more[N];
        load_f32(delta + i, more);
#pragma unroll
        for (int j = 0; j < N; ++j) squares += more[j] * more[j];
      }
      delta_factor /= sqrtf(sum_over_block(squares) / static_cast<float>(params.d) + params.delta_eps);
    }
  }
  float sum = 0;  // of squares for an RMS norm, of the elements for a layer norm
  const auto add = [&](std::int64_t i, float(&value)[N], float(&more)[N], const float(&of_delta)[N]) {
    add_second(i, more);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if constexpr (kKind == Kind::post)
        value[j] += more[j] * delta_factor * of_delta[j];
      else
        value[j] += delta_factor * more[j];
      if constexpr (kKind == Kind::layer)
        sum += value[j];
      else
        sum += value[j] * value[j];
    }
    if (params.delta != nullptr) store_f32(value, x + i);
  };
#pragma unroll
  for (int h = 0; h < kHeld; ++h)
    if (first + h * kStep < params.d) add(first + h * kStep, values[h], added[h], delta_weights[h]);
  for (std::int64_t i = first + kHeld * kStep; i < params.d; i += kStep) {
    float value[N];
    float more[N] = {};
    float unused[N];
    float of_delta[N];
    load_f32(x + i, value);
    if (params.delta != nullptr) load_f32(delta + i, more);
    load_weights(i, unused, of_delta);
    add(i, value, more, of_delta);
  }
  sum = sum_over_block(sum);
  float mean = 0;
  if constexpr (kKind == Kind::layer) {
    mean = sum / static_cast<float>(params.d);
    float squares = 0;
    const auto add_squares = [&](const float(&value)[N]) {
#pragma unroll
      for (int j = 0; j < N; ++j) squares += (value[j] - mean) * (value[j] - mean);
    };
#pragma unroll
    for (int h = 0; h < kHeld; ++h)
      if (first + h * kStep < params.d) add_squares(values[h]);
    for (std::int64_t i = first + kHeld * kStep; i < params.d; i += kStep) {
      float value[N];
      load_f32(x + i, value);  // written by this thread
      add_squares(value);
    }
    sum = sum_over_block(squares);
  }
  float factor = 1.0f / sqrtf(sum / static_cast<float>(params.d) + params.eps);
  if (kKind == Kind::post && params.weight == nullptr) factor = 1;
  const auto scale = [&]([[maybe_unused]] std::int64_t i, float(&value)[N], const float(&by)[N]) {
    if constexpr (kKind != Kind::layer) {
#pragma unroll
      for (int j = 0; j < N; ++j) value[j] = value[j] * factor * by[j];
    } else {
      float biases[N] = {};
      if (params.bias != nullptr) load_f32(params.bias + i, biases);
#pragma unroll
      for (int j = 0; j < N; ++j) value[j] = (value[j] - mean) * factor * by[j] + biases[j];
    }
  };
  /// Calls `use` with the row's outputs from column i on that are not held.
  const auto for_others = [&](auto&& use) {
    for (std::int64_t i = first + kHeld * kStep; i < params.d; i += kStep) {
      float value[N];
      float by[N];
      float unused[N];
      load_f32(x + i, value);  // written by this thread
      load_weights(i, by, unused);
      scale(i, value, by);
      use(i, value);
    }
  };
#pragma unroll
  for (int h = 0; h < kHeld; ++h)
    if (first + h * kStep < params.d) scale(first + h * kStep, values[h], weights[h]);
  store_row<Out>(params, first, values, of_warps, for_others);
}

template <Kind kKind, class Args>
void launch_norm(const Device& device, const Args& args, const ConstTensorView& bias, const TensorView& out_scales,
                 const TensorView& wide_out, const char* what) {
  const auto n_rows = static_cast<unsigned>(args.x.shape[0]);
  const std::int64_t d = args.x.shape[1];
  if (n_rows == 0 || d == 0) return;
  const Deltas& deltas = args.deltas;
  const NormParams params{.x = reinterpret_cast<float*>(args.x.data),
                          .delta = deltas.first.data,
                          .second_delta = deltas.second.data,
                          .delta_weight = reinterpret_cast<const float*>(deltas.norm_weight.data),
                          .weight = reinterpret_cast<const float*>(args.weight.data),
                          .bias = reinterpret_cast<const float*>(bias.data),
                          .out = args.out.data,
                          .out_scales = reinterpret_cast<float*>(out_scales.data),
                          .wide_out = wide_out.data,
                          .wide_dtype = wide_out.dtype,
                          .d = d,
                          .eps = args.eps,
                          .delta_scale = deltas.scale,
                          .delta_eps = deltas.norm_eps};
  const auto is_ready = [&](const ConstTensorView& tensor) { return tensor.data == nullptr || rows_are_aligned(d, tensor); };
  const bool is_aligned = rows_are_aligned(d, args.x, args.out) && is_ready(deltas.first) && is_ready(deltas.second) &&
                          is_ready(deltas.norm_weight) && is_ready(args.weight) && is_ready(bias) && is_ready(wide_out);
  const auto dtype_of = [](const ConstTensorView& tensor) { return tensor.data == nullptr ? DType::f32 : tensor.dtype; };
  visit_element(dtype_of(deltas.first), [&](auto delta) {
    using Delta = decltype(delta);
    const bool is_short = d <= kHeldOfShort * kThreads * kElementsAtOnce;
    const auto launch = [&](auto* kernel) {
      prefer_shared_memory(kernel);
      launch_overlapped(device, kernel, dim3(n_rows), kThreads, 0, what, params);
    };
    if constexpr (kKind != Kind::layer)
      if (args.out.dtype == DType::f8_e4m3) {
        check(is_aligned && d % kF8Block == 0, "norm: rows in 8 bits must be aligned and have a multiple of 64 columns");
        return launch(is_short ? norm_kernel<kKind, Delta, F8, kElementsAtOnce, kHeldOfShort>
                               : norm_kernel<kKind, Delta, F8, kElementsAtOnce, kHeldOfLong>);
      }
    visit_element(args.out.dtype, [&](auto out) {
      using Out = decltype(out);
      launch(!is_aligned ? norm_kernel<kKind, Delta, Out, 1, kHeldOfLong>
             : is_short  ? norm_kernel<kKind, Delta, Out, kElementsAtOnce, kHeldOfShort>
                         : norm_kernel<kKind, Delta, Out, kElementsAtOnce, kHeldOfLong>);
    });
  });
}

}  // namespace

void rms_norm(const Device& device, const RmsNormArgs& args) {
  if (args.deltas.norm_weight.data != nullptr || args.weight.data == nullptr)
    launch_norm<Kind::post>(device, args, {}, args.out_scales, args.wide_out, "rms_norm");
  else
    launch_norm<Kind::rms>(device, args, {}, args.out_scales, args.wide_out, "rms_norm");
}

void layer_norm(const Device& device, const LayerNormArgs& args) {
  launch_norm<Kind::layer>(device, args, args.bias, {}, {}, "layer_norm");
}

}  // namespace baton::cuda
