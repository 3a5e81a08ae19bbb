/// Skinny GEMM: persistent blocks whose threads divide k among them. Each thread keeps several loads of several weight
/// rows in flight, from one group of weight rows into the next. The rows of x are in shared memory. Memory bandwidth
/// is the limit, so multiplying by FMA costs nothing.
///
/// A block's first loads overlap the end of the kernel before, because weights are older than any step.
#include "kernels/cuda/gemm/kernels.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/device/direct_chunks.cuh"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/warp.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kResidents = 2;  ///< blocks a multiprocessor
/// Weight rows that a block multiplies together, so that a chunk of x is read from shared memory once for four of
/// them.
constexpr int kGroup = 4;
/// Loads of each weight row in flight: 16 x 16 bytes a thread, 128 KB a multiprocessor.
constexpr int kAhead = 4;
constexpr int kChunk = 8;  ///< numbers of one load
constexpr int kStep = kThreads * kChunk;
constexpr int kMaxRows = 4;

struct SkinnyGemmParams {
  const std::uint16_t* x;  ///< 16-bit floats, as the weight's
  const std::uint16_t* weight;
  const void* bias;  ///< [n], or null
  void* out;
  int n;
  int k;
  DType bias_dtype;
};

__device__ __forceinline__ float bias_of(const SkinnyGemmParams& p, int row) {
  switch (p.bias_dtype) {
    case DType::bf16: return to_f32(static_cast<const __nv_bfloat16*>(p.bias)[row]);
    case DType::f16: return to_f32(static_cast<const __half*>(p.bias)[row]);
    default: return static_cast<const float*>(p.bias)[row];
  }
}

/// T is the type of the eight numbers.
template <class T>
__device__ __forceinline__ void unpack(const uint4& words, float (&to)[kChunk]) {
  const std::uint32_t word[] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      to[2 * i] = __uint_as_float(word[i] << 16);
      to[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
    } else {
      to[2 * i] = __half2float(__ushort_as_half(static_cast<unsigned short>(word[i])));
      to[2 * i + 1] = __half2float(__ushort_as_half(static_cast<unsigned short>(word[i] >> 16)));
    }
  }
}

/// Sums each of `kValues` (a power of two) values over the warp; afterwards lane l has that of value l / (32 /
/// kValues).
template <int kValues, int kDistance = kWarpSize / 2, int kAll>
__device__ __forceinline__ float sum_over_warp(float (&values)[kAll]) {
  if constexpr (kDistance == 0) {
    return values[0];
  } else if constexpr (kValues == 1) {
    values[0] += __shfl_xor_sync(~0u, values[0], kDistance);
    return sum_over_warp<1, kDistance / 2>(values);
  } else {
    const bool is_upper = (threadIdx.x & kDistance) != 0;
#pragma unroll
    for (int i = 0; i < kValues / 2; ++i) {
      const float given = is_upper ? values[i] : values[i + kValues / 2];
      const float kept = is_upper ? values[i + kValues / 2] : values[i];
      values[i] = kept + __shfl_xor_sync(~0u, given, kDistance);
    }
    return sum_over_warp<kValues / 2, kDistance / 2>(values);
  }
}

/// A group of weight rows, and the thread's position in k.
struct Place {
  int row;
  int at;
};

__device__ __forceinline__ void load_group(const SkinnyGemmParams& p, const Place& place, uint4 (&to)[kGroup]) {
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    to[i] = make_uint4(0, 0, 0, 0);
    if (place.row < p.n && place.at < p.k)
      to[i] = load_chunk_once(p.weight + static_cast<std::int64_t>(place.row + i) * p.k + place.at);
  }
}

/// T is the type of x and of the weight.
template <class T, class Out, int kRows>
__global__ void __launch_bounds__(kThreads, kResidents) skinny_gemm_kernel(const __grid_constant__ SkinnyGemmParams p) {
  constexpr int kValues = kGroup * kRows;
  extern __shared__ __align__(16) std::uint16_t x_rows[];
  __shared__ float of_warps[2][kWarps][kValues];
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int lane = thread % kWarpSize;
  const int n_steps = (p.k + kStep - 1) / kStep;
  let_next_kernel_start();
  // A thread whose chunk lies after the end of k takes part in the step without a chunk.
  Place next{static_cast<int>(blockIdx.x) * kGroup, thread * kChunk};
  int next_step = 0;
  const auto advance = [&] {
    if (++next_step == n_steps) {
      next_step = 0;
      next = {next.row + static_cast<int>(gridDim.x) * kGroup, thread * kChunk};
    } else {
      next.at += kStep;
    }
  };
  uint4 held[kAhead][kGroup];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    load_group(p, next, held[i]);
    advance();
  }
  wait_for_kernel_before();
  for (int i = thread * kChunk; i < kRows * p.k; i += kStep)
    *reinterpret_cast<uint4*>(x_rows + i) = __ldcg(reinterpret_cast<const uint4*>(p.x + i));
  __syncthreads();

  float sums[kValues] = {};
  int step = 0;
  int parity = 0;
  for (int row = static_cast<int>(blockIdx.x) * kGroup; row < p.n;) {
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      const int at = step * kStep + thread * kChunk;
      if (row < p.n && at < p.k) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          float x[kChunk];
          unpack<T>(*reinterpret_cast<const uint4*>(x_rows + r * p.k + at), x);
#pragma unroll
          for (int i = 0; i < kGroup; ++i) {
            float weight[kChunk];
            unpack<T>(held[ahead][i], weight);
#pragma unroll
            for (int j = 0; j < kChunk; ++j) sums[i * kRows + r] = fmaf(weight[j], x[j], sums[i * kRows + r]);
          }
        }
      }
      load_group(p, next, held[ahead]);
      advance();
      if (row >= p.n || ++step < n_steps) continue;
      // The group's last step.
      const float sum = sum_over_warp<kValues>(sums);
      if (lane % (kWarpSize / kValues) == 0) of_warps[parity][warp][lane / (kWarpSize / kValues)] = sum;
      __syncthreads();
      if (thread < kValues) {
        float total = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) total += of_warps[parity][w][thread];
        if (p.bias != nullptr) total += bias_of(p, row + thread / kRows);
        static_cast<Out*>(p.out)[static_cast<std::int64_t>(thread % kRows) * p.n + row + thread / kRows] = from_f32<Out>(total);
      }
#pragma unroll
      for (float& value : sums) value = 0;
      parity ^= 1;
      step = 0;
      row += static_cast<int>(gridDim.x) * kGroup;
    }
  }
}

std::int64_t shared_bytes_of(std::int64_t n_rows, std::int64_t k) { return n_rows * k * 2; }

}  // namespace

bool can_multiply_skinny(const Device& device, std::int64_t n_rows, const ConstTensorView& weight) {
  constexpr std::int64_t kReservedBytes = 1024;  // of each block, by the system
  constexpr std::int64_t kOthersBytes = kReservedBytes + sizeof(float) * 2 * kWarps * kGroup * kMaxRows;
  const std::int64_t n = weight.shape[0];
  const std::int64_t k = weight.shape[1];
  const auto most_shared = static_cast<std::int64_t>(device.max_shared_bytes) + kReservedBytes;
  return std::ranges::find(kSkinnyRows, n_rows) != std::end(kSkinnyRows) &&
         (weight.dtype == DType::bf16 || weight.dtype == DType::f16) && n % kGroup == 0 && n <= 1 << 24 && k % kChunk == 0 &&
         k <= 1 << 20 && kResidents * (shared_bytes_of(n_rows, k) + kOthersBytes) <= most_shared && is_aligned(weight.data, 16);
}

void multiply_skinny(const Device& device, const ConstTensorView& x, const ConstTensorView& weight, const ConstTensorView& bias,
                     const TensorView& out) {
  check(can_multiply_skinny(device, x.shape[0], weight) && x.dtype == weight.dtype && is_aligned(x.data, 16) &&
            (out.dtype == x.dtype || out.dtype == DType::f32),
        "multiply_skinny: a matmul that it does not take");
  const SkinnyGemmParams params{reinterpret_cast<const std::uint16_t*>(x.data),
                                reinterpret_cast<const std::uint16_t*>(weight.data),
                                bias.data,
                                out.data,
                                static_cast<int>(weight.shape[0]),
                                static_cast<int>(weight.shape[1]),
                                bias.dtype};
  const auto shared_bytes = static_cast<int>(shared_bytes_of(x.shape[0], weight.shape[1]));
  const int n_blocks = std::min(params.n / kGroup, kResidents * device.n_multiprocessors);
  const auto launch = [&](auto* kernel) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "skinny_gemm");
    launch_overlapped(device, kernel, dim3(static_cast<unsigned>(n_blocks)), kThreads, shared_bytes, "skinny_gemm", params);
  };
  visit_operands(x.dtype, out.dtype, [&]<class T, class Out>(T, Out) {
    switch (x.shape[0]) {
      case 1: return launch(skinny_gemm_kernel<T, Out, 1>);
      case 2: return launch(skinny_gemm_kernel<T, Out, 2>);
      default: return launch(skinny_gemm_kernel<T, Out, kMaxRows>);
    }
  });
}

}  // namespace baton::cuda
