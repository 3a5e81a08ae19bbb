/// Converts elements of float tensors from one dtype to another, and draws random ones.
#include "kernels/cuda/device/elements.h"

#include <algorithm>

#include "kernels/cuda/device/elements.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;

template <class From, class To>
__global__ void __launch_bounds__(kThreads) convert_kernel(const From* from, To* to, std::int64_t n) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x; i < n;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads)
    to[i] = from_f32<To>(to_f32(from[i]));
}

/// A block draws a row, then one as many rows on as there are blocks.
template <class To>
__global__ void __launch_bounds__(kThreads) draw_kernel(const RandomRows rows, To* to, std::int64_t k) {
  for (std::int64_t row = blockIdx.x; row < rows.n_rows + rows.n_zero_rows; row += gridDim.x)
    for (std::int64_t i = threadIdx.x; i < k; i += kThreads) {
      const auto place = static_cast<std::uint64_t>(rows.first + row * rows.row_stride + i);
      to[row * k + i] = from_f32<To>(row < rows.n_rows ? random_element(rows.key, place, rows.half_width) : 0.0f);
    }
}

}  // namespace

void convert(const Device& device, const std::byte* from, DType from_dtype, std::byte* to, DType to_dtype, std::int64_t n) {
  if (n == 0) return;
  // Eight blocks fill a multiprocessor; for longer tensors each thread handles several elements.
  const auto n_blocks =
      static_cast<unsigned>(std::min<std::int64_t>((n + kThreads - 1) / kThreads, 8LL * device.n_multiprocessors));
  visit_element(from_dtype, [&](auto source) {
    visit_element(to_dtype, [&](auto target) {
      using From = decltype(source);
      using To = decltype(target);
      convert_kernel<From, To>
          <<<n_blocks, kThreads, 0, device.stream>>>(reinterpret_cast<const From*>(from), reinterpret_cast<To*>(to), n);
    });
  });
  check_launch("convert");
}

void draw(const Device& device, const RandomRows& rows, std::int64_t k, std::byte* to, DType to_dtype) {
  const std::int64_t n_rows = rows.n_rows + rows.n_zero_rows;
  if (n_rows == 0 || k == 0) return;
  const auto n_blocks = static_cast<unsigned>(std::min<std::int64_t>(n_rows, 8LL * device.n_multiprocessors));
  visit_element(to_dtype, [&](auto target) {
    using To = decltype(target);
    draw_kernel<To><<<n_blocks, kThreads, 0, device.stream>>>(rows, reinterpret_cast<To*>(to), k);
  });
  check_launch("draw");
}

}  // namespace baton::cuda
