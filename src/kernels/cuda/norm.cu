/// RMSNorm on a CUDA device: a block a row, in f32.
#include "kernels/cuda/norm.h"

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/warp.cuh"

namespace baton::cuda {
namespace {

/// Threads of a block, the same for any number of rows, so that a row's sum always has the same order.
constexpr int kThreads = 512;
/// Loads of a thread that are in flight at once and whose elements stay in registers between the two passes, so that a row of 8192
/// is read from memory once.
constexpr int kHeld = 4;

struct NormParams {
  float* x;
  const void* delta;  ///< of type Delta, or null
  const void* weight;
  void* out;
  std::int64_t d;
  float eps;
};

template <class Delta, class Weight, class Out, int N>
__global__ void __launch_bounds__(kThreads, 1) rms_norm_kernel(const NormParams params) {
  __shared__ float of_warps[kThreads / kWarpSize];
  constexpr std::int64_t kStep = kThreads * N;
  float* x = params.x + blockIdx.x * params.d;
  const auto* delta = static_cast<const Delta*>(params.delta) + blockIdx.x * params.d;
  const auto* weight = static_cast<const Weight*>(params.weight);
  auto* out = static_cast<Out*>(params.out) + blockIdx.x * params.d;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * N;
  float values[kHeld][N] = {};
  float weights[kHeld][N];
  float added[kHeld][N] = {};
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const std::int64_t i = first + h * kStep;
    if (i < params.d) load_f32(weight + i, weights[h]);
  }
  wait_for_kernel_before();
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
    const std::int64_t i = first + h * kStep;
    if (i >= params.d) continue;
    load_f32(x + i, values[h]);
    if (params.delta != nullptr) load_f32(delta + i, added[h]);
  }
  float squares = 0;
  const auto add = [&](std::int64_t i, float(&value)[N], const float(&more)[N]) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      value[j] += more[j];
      squares += value[j] * value[j];
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
  squares = block_join(squares, of_warps, [](float a, float b) { return a + b; });
  const float factor = 1.0f / sqrtf(squares / static_cast<float>(params.d) + params.eps);
  const auto scale = [&](std::int64_t i, float(&value)[N], const float(&by)[N]) {
#pragma unroll
    for (int j = 0; j < N; ++j) value[j] = value[j] * factor * by[j];
    store_f32(value, out + i);
  };
#pragma unroll
  for (int h = 0; h < kHeld; ++h)
    if (first + h * kStep < params.d) scale(first + h * kStep, values[h], weights[h]);
  for (std::int64_t i = first + kHeld * kStep; i < params.d; i += kStep) {
    float value[N];
    float by[N];
    load_f32(x + i, value);  // what this thread wrote
    load_f32(weight + i, by);
    scale(i, value, by);
  }
}

}  // namespace

void rms_norm(const Device& device, const RmsNormArgs& args) {
  const auto n_rows = static_cast<unsigned>(args.x.shape[0]);
  const std::int64_t d = args.x.shape[1];
  if (n_rows == 0 || d == 0) return;
  const bool has_delta = args.delta.data != nullptr;
  const NormParams params{reinterpret_cast<float*>(args.x.data), args.delta.data, args.weight.data, args.out.data, d, args.eps};
  const bool is_aligned = rows_are_aligned(d, args.x, args.weight, args.out) && (!has_delta || rows_are_aligned(d, args.delta));
  visit_element(has_delta ? args.delta.dtype : DType::f32, [&](auto delta) {
    visit_element(args.weight.dtype, [&](auto weight) {
      visit_element(args.out.dtype, [&](auto out) {
        using Delta = decltype(delta);
        using Weight = decltype(weight);
        using Out = decltype(out);
        auto* kernel =
            is_aligned ? rms_norm_kernel<Delta, Weight, Out, kElementsAtOnce> : rms_norm_kernel<Delta, Weight, Out, 1>;
        launch_overlapped(device, kernel, dim3(n_rows), kThreads, 0, "rms_norm", params);
      });
    });
  });
}

}  // namespace baton::cuda
