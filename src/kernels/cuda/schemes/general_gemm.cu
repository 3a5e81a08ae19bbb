/// A GEMM over weights of 8 and 4 bits without matrix units: a block has 16 rows of the weight, each of its warps every
/// eighth chunk of them. It serves what the streaming GEMM does not take.
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/schemes/scheme_kernels.h"
#include "kernels/cuda/schemes/scheme_values.cuh"

namespace baton::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kStripRows = 16;  ///< rows of the weight that a warp's pieces have
constexpr int kStrips = kSchemeTileRows / kStripRows;
constexpr int kRowsAtOnce = 4;  ///< rows of x

struct GeneralParams {
  SchemeView weight;
  const void* x;
  const void* bias;
  void* out;
  DType out_dtype;
  std::int64_t n_rows;
};

/// Writes a sum, and adds the bias, in out's type.
__device__ void store_sum(const GeneralParams& p, std::int64_t row, std::int64_t column, float sum) {
  const auto store = [&](auto* out, const auto* bias) {
    using Out = std::remove_pointer_t<decltype(out)>;
    out[row * p.weight.n + column] = from_f32<Out>(bias == nullptr ? sum : sum + to_f32(bias[column]));
  };
  switch (p.out_dtype) {
    case DType::bf16: return store(static_cast<__nv_bfloat16*>(p.out), static_cast<const __nv_bfloat16*>(p.bias));
    case DType::f16: return store(static_cast<__half*>(p.out), static_cast<const __half*>(p.bias));
    default: return store(static_cast<float*>(p.out), static_cast<const float*>(p.bias));
  }
}

/// Adds x times a chunk to the thread's two rows of the weight times kRowsAtOnce rows of x.
template <WeightScheme kScheme, class T>
__device__ __forceinline__ void add_chunk(const SchemeView& weight, std::int64_t tile, int chunk, int thread, const T* x,
                                          int n_rows, float (&sums)[2][kRowsAtOnce]) {
  constexpr int kChunkK = chunk_columns(kScheme);
#pragma unroll
  for (int step = 0; step < kChunkK / 16; ++step) {
    const int first = chunk * kChunkK + step * 16;
    if (first >= weight.k) break;
    std::uint32_t words[2];
    load_step<kScheme>(weight.values + tile * weight.n_chunks * kPieceBytes, chunk, step, thread, words);
    float scales[2];
    float zeros[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scales[half] = scale_at(weight, tile, fragment_row(thread, half), first);
      zeros[half] = zero_at<kScheme>(weight, tile, fragment_row(thread, half), first);
    }
#pragma unroll
    for (int i = 0; i < 4; i += 2)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = chunk * kChunkK + fragment_column(thread, step, i, e);
        if (column >= weight.k) continue;
        float weights[2];
#pragma unroll
        for (int half = 0; half < 2; ++half)
          weights[half] = (code_of_step<kScheme>(words, i + half, e) - zeros[half]) * scales[half];
#pragma unroll
        for (int r = 0; r < kRowsAtOnce; ++r) {
          if (r >= n_rows) break;
          const float value = to_f32(x[r * weight.k + column]);
          sums[0][r] += weights[0] * value;
          sums[1][r] += weights[1] * value;
        }
      }
  }
}

template <WeightScheme kScheme, class T>
__global__ void __launch_bounds__(kThreads) general_gemm_kernel(const __grid_constant__ GeneralParams p) {
  __shared__ float of_warps[kWarps][kStripRows][kRowsAtOnce];
  const auto strip = static_cast<int>(blockIdx.x % kStrips);
  const std::int64_t tile = blockIdx.x / kStrips;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kChunkK = chunk_columns(kScheme);
  const auto n_chunks = static_cast<int>((p.weight.k + kChunkK - 1) / kChunkK);
  wait_for_kernel_before();
  for (std::int64_t row = 0; row < p.n_rows; row += kRowsAtOnce) {
    const auto n_rows = static_cast<int>(min(p.n_rows - row, static_cast<std::int64_t>(kRowsAtOnce)));
    float sums[2][kRowsAtOnce] = {};
    for (int chunk = warp; chunk < n_chunks; chunk += kWarps)
      add_chunk<kScheme>(p.weight, tile, chunk, strip * 32 + lane, static_cast<const T*>(p.x) + row * p.weight.k, n_rows, sums);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int r = 0; r < kRowsAtOnce; ++r) {
        float sum = sums[half][r];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane % 4 == 0) of_warps[warp][lane / 4 + half * 8][r] = sum;
      }
    __syncthreads();
    if (threadIdx.x < kStripRows * kRowsAtOnce) {
      const int r = static_cast<int>(threadIdx.x) % kRowsAtOnce;
      const int of_strip = static_cast<int>(threadIdx.x) / kRowsAtOnce;
      const std::int64_t column = tile * kSchemeTileRows + strip * kStripRows + of_strip;
      float sum = 0;
#pragma unroll
      for (int other = 0; other < kWarps; ++other) sum += of_warps[other][of_strip][r];
      if (r < n_rows && column < p.weight.n) store_sum(p, row + r, column, sum);
    }
    __syncthreads();
  }
}

}  // namespace

void multiply_general(const Device& device, WeightScheme scheme, const ConstTensorView& x, const SchemeView& weight,
                      const ConstTensorView& bias, const TensorView& out) {
  const GeneralParams params{weight, x.data, bias.data, out.data, out.dtype, x.shape[0]};
  visit_scheme(scheme, [&](auto constant) {
    visit_element(x.dtype, [&](auto zero) {
      launch_overlapped(device, general_gemm_kernel<decltype(constant)::value, decltype(zero)>,
                        dim3(static_cast<unsigned>(weight.n_tiles * kStrips)), kThreads, 0, "general_gemm", params);
    });
  });
}

}  // namespace baton::cuda
