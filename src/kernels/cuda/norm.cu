/// Norms on a CUDA device, computed in f32, one block for each row.
#include "kernels/cuda/norm.h"

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/warp.cuh"

namespace baton::cuda {
namespace {

/// Threads of a block. The number is fixed, so that the sum of a row always has the same order.
constexpr int kThreads = 512;
/// Loads that a thread has in flight at once. Their elements stay in registers between the passes, so that a row of up
/// to 8192 elements is read from memory once.
constexpr int kHeld = 4;

enum class Kind { rms, layer };

struct NormParams {
  float* x;
  const void* delta;         ///< of type Delta, or null
  const void* second_delta;  ///< of type Delta, or null
  const void* weight;
  const void* bias;  ///< of type Weight, or null
  void* out;
  std::int64_t d;
  float eps;
};

template <Kind kKind, class Delta, class Weight, class Out, int N>
__global__ void __launch_bounds__(kThreads, 1) norm_kernel(const NormParams params) {
  __shared__ float of_warps[kThreads / kWarpSize];
  constexpr std::int64_t kStep = kThreads * N;
  float* x = params.x + blockIdx.x * params.d;
  const auto* delta = static_cast<const Delta*>(params.delta) + blockIdx.x * params.d;
  const auto* second_delta = static_cast<const Delta*>(params.second_delta) + blockIdx.x * params.d;
  const auto* weight = static_cast<const Weight*>(params.weight);
  const auto* bias = static_cast<const Weight*>(params.bias);
  auto* out = static_cast<Out*>(params.out) + blockIdx.x * params.d;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * N;
  const auto sum_over_block = [&](float sum) { return block_join(sum, of_warps, [](float a, float b) { return a + b; }); };
  float values[kHeld][N] = {};
  float weights[kHeld][N];
  float added[kHeld][N] = {};
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const std::int64_t i = first + h * kStep;
    if (i < params.d) load_f32(weight + i, weights[h]);
  }
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
  float sum = 0;  // of squares for an RMS norm, of the elements for a layer norm
  const auto add = [&](std::int64_t i, float(&value)[N], float(&more)[N]) {
    add_second(i, more);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      value[j] += more[j];
      if constexpr (kKind == Kind::rms)
        sum += value[j] * value[j];
      else
        sum += value[j];
    }
    if (params.delta != nullptr) store_f32(value, x + i);
  };
#pragma unroll
  for (int h = 0; h < kHeld; ++h)
    if (first + h * kStep < params.d) add(first + h * kStep, values[h], added[h]);
  for (std::int64_t i = first + kHeld * kStep; i < params.d; i += kStep) {
    float value[N];
    float more[N] = {};
    load_f32(x + i, value);
    if (params.delta != nullptr) load_f32(delta + i, more);
    add(i, value, more);
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
  const float factor = 1.0f / sqrtf(sum / static_cast<float>(params.d) + params.eps);
  const auto scale = [&](std::int64_t i, float(&value)[N], const float(&by)[N]) {
    if constexpr (kKind == Kind::rms) {
#pragma unroll
      for (int j = 0; j < N; ++j) value[j] = value[j] * factor * by[j];
    } else {
      float biases[N] = {};
      if (params.bias != nullptr) load_f32(bias + i, biases);
#pragma unroll
      for (int j = 0; j < N; ++j) value[j] = (value[j] - mean) * factor * by[j] + biases[j];
    }
    store_f32(value, out + i);
  };
#pragma unroll
  for (int h = 0; h < kHeld; ++h)
    if (first + h * kStep < params.d) scale(first + h * kStep, values[h], weights[h]);
  for (std::int64_t i = first + kHeld * kStep; i < params.d; i += kStep) {
    float value[N];
    float by[N];
    load_f32(x + i, value);  // written by this thread
    load_f32(weight + i, by);
    scale(i, value, by);
  }
}

template <Kind kKind, class Args>
void launch_norm(const Device& device, const Args& args, const ConstTensorView& bias, const char* what) {
  const auto n_rows = static_cast<unsigned>(args.x.shape[0]);
  const std::int64_t d = args.x.shape[1];
  if (n_rows == 0 || d == 0) return;
  const bool has_delta = args.delta.data != nullptr;
  const NormParams params{reinterpret_cast<float*>(args.x.data),
                          args.delta.data,
                          args.second_delta.data,
                          args.weight.data,
                          bias.data,
                          args.out.data,
                          d,
                          args.eps};
  const auto is_ready = [&](const ConstTensorView& tensor) { return tensor.data == nullptr || rows_are_aligned(d, tensor); };
  const bool is_aligned = rows_are_aligned(d, args.x, args.weight, args.out) && is_ready(args.delta) &&
                          is_ready(args.second_delta) && is_ready(bias);
  visit_element(has_delta ? args.delta.dtype : DType::f32, [&](auto delta) {
    visit_element(args.weight.dtype, [&](auto weight) {
      visit_element(args.out.dtype, [&](auto out) {
        using Delta = decltype(delta);
        using Weight = decltype(weight);
        using Out = decltype(out);
        auto* kernel =
            is_aligned ? norm_kernel<kKind, Delta, Weight, Out, kElementsAtOnce> : norm_kernel<kKind, Delta, Weight, Out, 1>;
        launch_overlapped(device, kernel, dim3(n_rows), kThreads, 0, what, params);
      });
    });
  });
}

}  // namespace

void rms_norm(const Device& device, const RmsNormArgs& args) { launch_norm<Kind::rms>(device, args, {}, "rms_norm"); }

void layer_norm(const Device& device, const LayerNormArgs& args) {
  launch_norm<Kind::layer>(device, args, args.bias, "layer_norm");
}

}  // namespace baton::cuda
