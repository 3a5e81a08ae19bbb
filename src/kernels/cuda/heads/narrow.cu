/// head_matmul for few rows: a block multiplies up to 64 rows by 32 rows of a head's weight, which it reads at once, before the
/// kernel before has ended. Each warp has 8 rows of the weight and all of k.
#include <algorithm>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/heads/kernel.h"
#include "kernels/cuda/heads/tiles.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kTileN = 8 * kWarps;
constexpr int kMTiles = 4;  ///< tiles of 16 rows of x in a block, at most
constexpr int kTileRows = 16 * kMTiles;

template <class T>
__global__ void __launch_bounds__(kThreads) narrow_head_kernel(const __grid_constant__ HeadMatmulParams p) {
  extern __shared__ __align__(128) std::byte memory[];
  const int head = static_cast<int>(blockIdx.y);
  const int first_n = static_cast<int>(blockIdx.x) * kTileN;
  const int first_row = static_cast<int>(blockIdx.z) * kTileRows;
  const int m_tiles = min(kMTiles, (p.n_rows - first_row + 15) / 16);
  const int n_panels = (p.k + kPanelK - 1) / kPanelK;
  constexpr int kWeightBytes = kTileN * kPanelRowBytes;
  const int x_bytes = 16 * m_tiles * kPanelRowBytes;
  const auto* const weights = static_cast<const T*>(p.weights) + static_cast<std::int64_t>(head) * p.n * p.k;
  const auto* const x = static_cast<const T*>(p.x) + head * p.x_stride;
  std::uint32_t weight_at = shared_address(memory);
  std::uint32_t x_at = weight_at + n_panels * kWeightBytes;
  for (int panel = 0; panel < n_panels; ++panel)
    copy_panel<kTileN, kThreads>(weight_at + panel * kWeightBytes, weights, p.k, first_n, p.n, panel * kPanelK, p.k);
  wait_for_kernel_before();
  let_next_kernel_start();
  for (int panel = 0; panel < n_panels; ++panel)
    for (int m = 0; m < m_tiles; ++m)
      copy_panel<16, kThreads>(x_at + panel * x_bytes + m * 16 * kPanelRowBytes, x, p.x_columns, first_row + m * 16, p.n_rows,
                               panel * kPanelK, p.k);
  wait_for_copies();
  __syncthreads();
  weight_at = as_of_now(weight_at);
  x_at = as_of_now(x_at);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float sums[kMTiles][4] = {};
  for (int panel = 0; panel < n_panels; ++panel) {
#pragma unroll
    for (int pair = 0; pair < kPanelK / 32; ++pair) {
      std::uint32_t b[4];  // of two steps of 16 columns
      load_matrices(b, weight_at + panel * kWeightBytes + panel_place(warp * 8 + lane % 8, pair * 4 + lane / 8));
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
        if (m >= m_tiles) break;
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          std::uint32_t a[4];
          load_a(a, x_at + panel * x_bytes, m * 16, pair * 2 + step);
          multiply_16x8x16<T>(sums[m], a, b[2 * step], b[2 * step + 1]);
        }
      }
    }
  }
  const int column = first_n + warp * 8 + lane % 4 * 2;
  if (column >= p.n) return;
#pragma unroll
  for (int m = 0; m < kMTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + m * 16 + half * 8 + lane / 4;
      if (row < p.n_rows)
        store_pair<T>(p, row * p.out_columns + head * p.out_stride + column, sums[m][2 * half], sums[m][2 * half + 1]);
    }
}

}  // namespace

void head_matmul_narrow(const Device& device, DType dtype, const HeadMatmulParams& params) {
  const int n_panels = (params.k + kPanelK - 1) / kPanelK;
  const int x_rows = 16 * std::min(kMTiles, (params.n_rows + 15) / 16);
  const int shared_bytes = n_panels * (kTileN + x_rows) * kPanelRowBytes;
  const dim3 grid(static_cast<unsigned>((params.n + kTileN - 1) / kTileN), static_cast<unsigned>(params.n_heads),
                  static_cast<unsigned>((params.n_rows + kTileRows - 1) / kTileRows));
  const auto launch = [&](auto* kernel) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "head_matmul");
    launch_overlapped(device, kernel, grid, kThreads, shared_bytes, "head_matmul", params);
  };
  if (dtype == DType::f16)
    launch(narrow_head_kernel<__half>);
  else
    launch(narrow_head_kernel<__nv_bfloat16>);
}

}  // namespace baton::cuda
