/// RMSNorm on a CUDA device: a block a row, in f32.
#include "kernels/cuda/norm.h"

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/warp.cuh"

namespace baton::cuda {
namespace {

/// Whatever the number of rows, so that a row's sum has one order.
constexpr int kThreads = 256;

struct NormParams {
  float* x;
  const void* delta;  ///< of type Delta, or null
  const void* weight;
  void* out;
  std::int64_t d;
  float eps;
};

template <class Delta, class Weight, class Out, int N>
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(const NormParams params) {
  __shared__ float of_warps[kThreads / kWarpSize];
  float* x = params.x + blockIdx.x * params.d;
  const auto* weight = static_cast<const Weight*>(params.weight);
  auto* out = static_cast<Out*>(params.out) + blockIdx.x * params.d;
  float squares = 0;
  for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * N; i < params.d; i += kThreads * N) {
    float values[N];
    load_f32(x + i, values);
    if (params.delta != nullptr) {
      float added[N];
      load_f32(static_cast<const Delta*>(params.delta) + blockIdx.x * params.d + i, added);
#pragma unroll
      for (int j = 0; j < N; ++j) values[j] += added[j];
      store_f32(values, x + i);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) squares += values[j] * values[j];
  }
  squares = block_join(squares, of_warps, [](float a, float b) { return a + b; });
  const float factor = 1.0f / sqrtf(squares / static_cast<float>(params.d) + params.eps);
  for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * N; i < params.d; i += kThreads * N) {
    float values[N];
    float weights[N];
    load_f32(x + i, values);  // what this thread wrote
    load_f32(weight + i, weights);
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = values[j] * factor * weights[j];
    store_f32(values, out + i);
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
        kernel<<<n_rows, kThreads, 0, device.stream>>>(params);
      });
    });
  });
  check_launch("rms_norm");
}

}  // namespace baton::cuda
