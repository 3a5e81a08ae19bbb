/// Activations on a CUDA device, in f32.
#include "kernels/cuda/rows/rows.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/activations.cuh"
#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/f8_rows.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/device/warp.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float activated(float x, ActivationKind kind) {
  if (kind == ActivationKind::gelu) return gelu_exact(x);
  if (kind == ActivationKind::gelu_tanh) return gelu_tanh<float>(x);
  return x < 0.0f ? 0.0f : x * x;  // a comparison with NaN is false, so a NaN stays
}

template <class In, class Out, int N>
__global__ void __launch_bounds__(kThreads)
    activation_kernel(const In* in, Out* out, std::int64_t n_elements, ActivationKind kind) {
  let_next_kernel_start();  // a matmul reads its first weights meanwhile
  wait_for_kernel_before();
  for (std::int64_t i = (blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x) * N; i < n_elements;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads * N) {
    float x[N];
    load_f32(in + i, x);
#pragma unroll
    for (int j = 0; j < N; ++j) x[j] = activated(x[j], kind);
    store_f32(x, out + i);
  }
}

/// The numbers of clamped_silu.
struct Clamp {
  float alpha;
  float limit;
};

/// For outputs of type Out.
template <GateKind kKind, class Out>
__device__ __forceinline__ float gated(float gate, float up, const Clamp& clamp) {
  if constexpr (kKind == GateKind::gelu) return gelu_exact(gate) * up;
  if constexpr (kKind == GateKind::gelu_tanh) return gelu_tanh<Out>(gate) * up;
  if constexpr (kKind == GateKind::clamped_silu) {  // a comparison with NaN is false, so a NaN stays
    gate = gate > clamp.limit ? clamp.limit : gate;
    up = up > clamp.limit ? clamp.limit : up < -clamp.limit ? -clamp.limit : up;
    return gate / (1.0f + expf(-clamp.alpha * gate)) * (up + 1.0f);
  }
  return silu<Out>(gate) * up;
}

template <GateKind kKind, class In, class Out, int N>
__global__ void __launch_bounds__(kThreads)
    gated_activation_kernel(const In* gate_up, Out* out, std::int64_t n_rows, std::int64_t n, Clamp clamp) {
  let_next_kernel_start();  // a matmul reads its first weights meanwhile
  wait_for_kernel_before();
  const std::int64_t steps_per_row = n / N;
  const std::int64_t n_steps = n_rows * steps_per_row;
  for (std::int64_t step = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; step < n_steps;
       step += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    const std::int64_t row = step / steps_per_row;
    const std::int64_t i = (step - row * steps_per_row) * N;
    float gate[N];
    float up[N];
    load_f32(gate_up + row * 2 * n + i, gate);
    load_f32(gate_up + row * 2 * n + n + i, up);
#pragma unroll
    for (int j = 0; j < N; ++j) gate[j] = gated<kKind, Out>(gate[j], up[j], clamp);
    store_f32(gate, out + row * n + i);
  }
}

/// Elements of a 16-bit type in 16 bytes, the widest access.
constexpr int kWideElements = 8;

/// The same for 16-bit elements and many rows: each thread makes one step of the widest accesses, so that a
/// multiprocessor has 64 KiB of loads in flight. A block's steps are of one row.
template <GateKind kKind, class T>
__global__ void __launch_bounds__(kThreads, 8)
    gated_activation_rows_kernel(const T* gate_up, T* out, std::int32_t n, std::int32_t blocks_per_row, Clamp clamp) {
  let_next_kernel_start();
  const auto row = static_cast<std::int64_t>(static_cast<std::int32_t>(blockIdx.x) / blocks_per_row);
  const std::int32_t block = static_cast<std::int32_t>(blockIdx.x) % blocks_per_row;
  const std::int32_t i = (block * kThreads + static_cast<std::int32_t>(threadIdx.x)) * kWideElements;
  wait_for_kernel_before();
  if (i >= n) return;
  using Wide = Elements<T, kWideElements>;
  Wide gate = *reinterpret_cast<const Wide*>(gate_up + row * 2 * n + i);
  const Wide up = *reinterpret_cast<const Wide*>(gate_up + row * 2 * n + n + i);
#pragma unroll
  for (int j = 0; j < kWideElements; ++j)
    gate.values[j] = from_f32<T>(gated<kKind, T>(to_f32(gate.values[j]), to_f32(up.values[j]), clamp));
  *reinterpret_cast<Wide*>(out + row * n + i) = gate;
}

template <GateKind kKind, class In>
__global__ void __launch_bounds__(kF8RowThreads, 2)
    gated_activation_f8_kernel(const In* gate_up, std::uint8_t* out, float* scales, std::int64_t n, Clamp clamp) {
  let_next_kernel_start();
  const In* const gate_row = gate_up + blockIdx.x * 2 * n;
  wait_for_kernel_before();
  round_row(n, out + blockIdx.x * n, scales + blockIdx.x, [&](std::int64_t i, float(&values)[kF8RowColumns]) {
    constexpr int kAtOnce = 16 / sizeof(In);
#pragma unroll
    for (int c = 0; c < kF8RowColumns; c += kAtOnce) {
      float gate[kAtOnce];
      float up[kAtOnce];
      load_f32(gate_row + i + c, gate);
      load_f32(gate_row + n + i + c, up);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) values[c + j] = gated<kKind, float>(gate[j], up[j], clamp);
    }
  });
}

template <GateKind kKind>
void launch_gated_f8(const Device& device, const GatedActivationArgs& args) {
  check(is_aligned(args.gate_up.data, 16) && is_aligned(args.out.data, 16) && args.out.shape[1] % kF8Block == 0,
        "gated_activation: rows in 8 bits must be aligned and have a multiple of 64 columns");
  visit_element(args.gate_up.dtype, [&](auto in) {
    using In = decltype(in);
    launch_overlapped(device, gated_activation_f8_kernel<kKind, In>, dim3(static_cast<unsigned>(args.out.shape[0])),
                      kF8RowThreads, 0, "gated_activation", reinterpret_cast<const In*>(args.gate_up.data),
                      reinterpret_cast<std::uint8_t*>(args.out.data), reinterpret_cast<float*>(args.out_scales.data),
                      args.out.shape[1], Clamp{args.alpha, args.limit});
  });
}

/// Number of blocks for `n_steps` steps. Eight blocks fill a multiprocessor; more steps are a loop in each thread.
unsigned blocks_for(const Device& device, std::int64_t n_steps) {
  return static_cast<unsigned>(std::min<std::int64_t>((n_steps + kThreads - 1) / kThreads, 8LL * device.n_multiprocessors));
}

/// Whether rows of a multiple of kWideElements elements can be read and written in accesses of 16 bytes.
template <class Tensor>
bool is_widest(const Tensor& tensor) {
  return size_bytes(tensor.dtype) == 2 && is_aligned(tensor.data, 16);
}

template <GateKind kKind>
void launch_gated(const Device& device, const GatedActivationArgs& args) {
  const std::int64_t n_rows = args.out.shape[0];
  const std::int64_t n = args.out.shape[1];
  if (n_rows == 0 || n == 0) return;
  if (args.out.dtype == DType::f8_e4m3) return launch_gated_f8<kKind>(device, args);
  const bool is_aligned = rows_are_aligned(n, args.gate_up, args.out);
  const std::int64_t n_steps = n_rows * n / (is_aligned ? kElementsAtOnce : 1);
  const unsigned n_blocks = blocks_for(device, n_steps);
  const std::int64_t blocks_per_row = (n / kWideElements + kThreads - 1) / kThreads;
  const bool is_wide = n_steps > static_cast<std::int64_t>(n_blocks) * kThreads && n % kWideElements == 0 &&
                       is_widest(args.gate_up) && is_widest(args.out) && n_rows * blocks_per_row <= INT32_MAX;
  const Clamp clamp{args.alpha, args.limit};
  visit_element(args.gate_up.dtype, [&](auto in) {
    visit_element(args.out.dtype, [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      if constexpr (std::is_same_v<In, Out> && sizeof(In) == 2) {
        if (is_wide) {
          auto* kernel = gated_activation_rows_kernel<kKind, In>;
          prefer_shared_memory(kernel);
          return launch_overlapped(device, kernel, dim3(static_cast<unsigned>(n_rows * blocks_per_row)), kThreads, 0,
                                   "gated_activation", reinterpret_cast<const In*>(args.gate_up.data),
                                   reinterpret_cast<Out*>(args.out.data), static_cast<std::int32_t>(n),
                                   static_cast<std::int32_t>(blocks_per_row), clamp);
        }
      }
      auto* kernel =
          is_aligned ? gated_activation_kernel<kKind, In, Out, kElementsAtOnce> : gated_activation_kernel<kKind, In, Out, 1>;
      prefer_shared_memory(kernel);
      launch_overlapped(device, kernel, dim3(n_blocks), kThreads, 0, "gated_activation",
                        reinterpret_cast<const In*>(args.gate_up.data), reinterpret_cast<Out*>(args.out.data), n_rows, n,
                        clamp);
    });
  });
}

}  // namespace

void activation(const Device& device, const ActivationArgs& args) {
  const std::int64_t n_elements = args.out.shape.n_elements();
  if (n_elements == 0) return;
  const bool is_aligned = rows_are_aligned(args.out.shape[1], args.in, args.out);  // the same for any number of rows
  const unsigned n_blocks = blocks_for(device, n_elements / (is_aligned ? kElementsAtOnce : 1));
  visit_element(args.in.dtype, [&](auto in) {
    visit_element(args.out.dtype, [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      auto* kernel = is_aligned ? activation_kernel<In, Out, kElementsAtOnce> : activation_kernel<In, Out, 1>;
      prefer_shared_memory(kernel);
      launch_overlapped(device, kernel, dim3(n_blocks), kThreads, 0, "activation", reinterpret_cast<const In*>(args.in.data),
                        reinterpret_cast<Out*>(args.out.data), n_elements, args.kind);
    });
  });
}

void gated_activation(const Device& device, const GatedActivationArgs& args) {
  switch (args.kind) {
    case GateKind::silu: return launch_gated<GateKind::silu>(device, args);
    case GateKind::gelu: return launch_gated<GateKind::gelu>(device, args);
    case GateKind::gelu_tanh: return launch_gated<GateKind::gelu_tanh>(device, args);
    case GateKind::clamped_silu: return launch_gated<GateKind::clamped_silu>(device, args);
  }
}

}  // namespace baton::cuda
