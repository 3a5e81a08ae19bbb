/// Dense copies of rows of packed weights, and x with its columns in a weight's order. Fixed grids loop.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/schemes/scheme_kernels.h"
#include "kernels/cuda/schemes/scheme_values.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnitsOfPiece = kPieceBytes / 16;

template <class T>
__device__ __forceinline__ void store_pair(T* to, float first, float second, bool is_aligned, bool has_second) {
  if (is_aligned) return store_f32<2>({first, second}, to);
  to[0] = from_f32<T>(first);
  if (has_second) to[1] = from_f32<T>(second);
}

/// A thread has what a thread of the streaming GEMM has of a step: two rows, four columns of each.
template <WeightScheme kScheme, class T>
__global__ void __launch_bounds__(kThreads)
    widen_rows_kernel(SchemeView weight, T* out, std::int64_t first_tile, std::int64_t n_rows, std::int64_t n_units) {
  constexpr int kSteps = chunk_columns(kScheme) / 16;
  wait_for_kernel_before();  // which may read out
  for (std::int64_t u = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; u < n_units * kSteps;
       u += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    const auto step = static_cast<int>(u % kSteps);
    const auto thread = static_cast<int>(u / kSteps % kUnitsOfPiece);
    const std::int64_t piece = u / kSteps / kUnitsOfPiece;
    const std::int64_t tile = piece / weight.n_chunks;
    const int first_column = static_cast<int>(piece % weight.n_chunks) * chunk_columns(kScheme);
    if (first_column + step * 16 >= weight.k) continue;
    std::uint32_t words[2];
    load_step<kScheme>(weight.values + (first_tile + tile) * weight.n_chunks * kPieceBytes,
                       static_cast<int>(piece % weight.n_chunks), step, thread, words);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = fragment_row(thread, half);
      if (tile * kSchemeTileRows + row >= n_rows) continue;
      T* const to = out + (tile * kSchemeTileRows + row) * weight.k;
      const float scale = scale_at(weight, first_tile + tile, row, first_column + step * 16);
      const float zero = zero_at<kScheme>(weight, first_tile + tile, row, first_column + step * 16);
#pragma unroll
      for (int i = half; i < 4; i += 2) {
        const int column = first_column + fragment_column(thread, step, i, 0);
        if (column >= weight.k) continue;
        store_pair(to + column, (code_of_step<kScheme>(words, i, 0) - zero) * scale,
                   (code_of_step<kScheme>(words, i, 1) - zero) * scale, weight.k % 2 == 0, column + 1 < weight.k);
      }
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    arrange_columns_kernel(const T* x, const std::int32_t* order, T* out, std::int64_t k, std::int64_t width) {
  wait_for_kernel_before();
  const std::int64_t row = blockIdx.y;
  for (std::int64_t c = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; c < width;
       c += static_cast<std::int64_t>(gridDim.x) * kThreads)
    out[row * width + c] = c < k ? x[row * k + (order == nullptr ? c : order[c])] : from_f32<T>(0);
}

}  // namespace

void arrange_columns(const Device& device, const ConstTensorView& x, const std::int32_t* order, const TensorView& out) {
  const std::int64_t width = out.shape[1];
  const dim3 grid(static_cast<unsigned>((width + kThreads - 1) / kThreads), static_cast<unsigned>(x.shape[0]));
  visit_element(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_overlapped(device, arrange_columns_kernel<T>, grid, kThreads, 0, "arrange_columns",
                      reinterpret_cast<const T*>(x.data), order, reinterpret_cast<T*>(out.data), x.shape[1], width);
  });
}

void widen_rows(const Device& device, WeightScheme scheme, const SchemeView& weight, std::int64_t first_row,
                const TensorView& out) {
  const std::int64_t n_rows = out.shape[0];
  const std::int64_t n_units = (n_rows + kSchemeTileRows - 1) / kSchemeTileRows * weight.n_chunks * kUnitsOfPiece;
  const auto n_blocks =
      static_cast<unsigned>(std::min<std::int64_t>((n_units + kThreads - 1) / kThreads, 8LL * device.n_multiprocessors));
  visit_scheme(scheme, [&](auto constant) {
    visit_element(out.dtype, [&](auto zero) {
      using T = decltype(zero);
      launch_overlapped(device, widen_rows_kernel<decltype(constant)::value, T>, dim3(n_blocks), kThreads, 0, "widen_rows",
                        weight, reinterpret_cast<T*>(out.data), first_row / kSchemeTileRows, n_rows, n_units);
    });
  });
}

}  // namespace baton::cuda
