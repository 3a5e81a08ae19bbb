/// head_matmul for many rows: tiles of 128 rows by 128 rows of a head's weight, whose panels go through a ring of stages.
/// Each of four warps has a quarter, 64 x 64.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/heads/kernel.h"
#include "kernels/cuda/heads/tiles.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTile = kWideTile;  ///< rows of x, and of the weight
constexpr int kWarpTile = 64;
constexpr int kMTiles = kWarpTile / 16;
constexpr int kNTiles = kWarpTile / 8;
constexpr int kStages = 3;
constexpr int kPartBytes = kTile * kPanelRowBytes;  ///< of a stage: x, then the weight
constexpr int kStageBytes = 2 * kPartBytes;
constexpr int kSharedBytes = kStages * kStageBytes;
/// Of a row of 16-bit results in shared memory: 16 more than the results, so that rows start in different banks.
constexpr int kResultRowBytes = kTile * 2 + 16;
static_assert(kTile * kResultRowBytes <= kSharedBytes);

/// The place of this warp's tile, and of this thread's numbers of each 16 x 8.
struct Place {
  int row;  ///< the first of the warp's rows of x in the block's tile
  int n;    ///< the same of the weight
  int lane;
};

template <class T>
__device__ __forceinline__ void multiply_panel(float (&sums)[kMTiles][kNTiles][4], std::uint32_t stage, const Place& place) {
#pragma unroll
  for (int step = 0; step < kPanelK / 16; ++step) {
    std::uint32_t a[kMTiles][4];
    std::uint32_t b[kNTiles / 2][4];  // of two n tiles
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) load_a(a[m], stage, place.row + m * 16, step);
#pragma unroll
    for (int pair = 0; pair < kNTiles / 2; ++pair)
      load_matrices(b[pair],
                    stage + kPartBytes +
                        panel_place(place.n + pair * 16 + place.lane / 16 * 8 + place.lane % 8, step * 2 + place.lane / 8 % 2));
#pragma unroll
    for (int m = 0; m < kMTiles; ++m)
#pragma unroll
      for (int n = 0; n < kNTiles; ++n) multiply_16x8x16<T>(sums[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
  }
}

/// Calls store(row, column, low, high) with this thread's pairs of sums; row and column in the block's tile.
template <class Store>
__device__ __forceinline__ void for_pairs(const float (&sums)[kMTiles][kNTiles][4], const Place& place, Store&& store) {
#pragma unroll
  for (int m = 0; m < kMTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < kNTiles; ++n)
        store(place.row + m * 16 + half * 8 + place.lane / 4, place.n + n * 8 + place.lane % 4 * 2, sums[m][n][2 * half],
              sums[m][n][2 * half + 1]);
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2) wide_head_kernel(const __grid_constant__ HeadMatmulParams p) {
  extern __shared__ __align__(128) std::byte memory[];
  const std::uint32_t stages = shared_address(memory);
  const int head = static_cast<int>(blockIdx.z);
  const int first_row = static_cast<int>(blockIdx.y) * kTile;
  const int first_n = static_cast<int>(blockIdx.x) * kTile;
  const int n_panels = (p.k + kPanelK - 1) / kPanelK;
  const auto* const weights = static_cast<const T*>(p.weights) + static_cast<std::int64_t>(head) * p.n * p.k;
  const auto* const x = static_cast<const T*>(p.x) + head * p.x_stride;
  const auto copy_weight = [&](int panel) {
    copy_panel<kTile, kThreads>(stages + panel % kStages * kStageBytes + kPartBytes, weights, p.k, first_n, p.n,
                                panel * kPanelK, p.k);
  };
  const auto copy_x = [&](int panel) {
    copy_panel<kTile, kThreads>(stages + panel % kStages * kStageBytes, x, p.x_columns, first_row, p.n_rows, panel * kPanelK,
                                p.k);
  };
  for (int panel = 0; panel < min(kStages - 1, n_panels); ++panel) copy_weight(panel);
  wait_for_kernel_before();
  let_next_kernel_start();
#pragma unroll
  for (int panel = 0; panel < kStages - 1; ++panel) {
    if (panel < n_panels) copy_x(panel);
    commit_copies();
  }
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const Place place{warp / 2 * kWarpTile, warp % 2 * kWarpTile, static_cast<int>(threadIdx.x) % 32};
  float sums[kMTiles][kNTiles][4] = {};
#pragma unroll 1
  for (int panel = 0; panel < n_panels; ++panel) {
    wait_for_copy_groups<kStages - 2>();
    __syncthreads();  // the panel is there, and the one before it has been multiplied
    if (const int next = panel + kStages - 1; next < n_panels) {
      copy_weight(next);
      copy_x(next);
    }
    commit_copies();
    multiply_panel<T>(sums, as_of_now(stages + panel % kStages * kStageBytes), place);
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) own_accumulators(sums[m]);
  }
  const std::int64_t out_begin = head * p.out_stride + first_n;
  if (p.out_is_f32) {
    for_pairs(sums, place, [&](int row, int column, float low, float high) {
      if (first_row + row < p.n_rows && first_n + column < p.n)
        store_pair<T>(p, (first_row + row) * p.out_columns + out_begin + column, low, high);
    });
    return;
  }
  // Through shared memory, so that stores are of whole rows.
  wait_for_copy_groups<0>();
  __syncthreads();
  for_pairs(sums, place, [&](int row, int column, float low, float high) {
    *reinterpret_cast<std::uint32_t*>(memory + row * kResultRowBytes + column * 2) = pack_pair<T>(low, high);
  });
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kTile * (kTile / 8); i += kThreads) {
    const int row = i / (kTile / 8);
    const int column = i % (kTile / 8) * 8;
    if (first_row + row < p.n_rows && first_n + column < p.n)
      *reinterpret_cast<uint4*>(static_cast<T*>(p.out) + (first_row + row) * p.out_columns + out_begin + column) =
          *reinterpret_cast<const uint4*>(memory + row * kResultRowBytes + column * 2);
  }
}

}  // namespace

void head_matmul_wide(const Device& device, DType dtype, const HeadMatmulParams& params) {
  const dim3 grid(static_cast<unsigned>((params.n + kTile - 1) / kTile),
                  static_cast<unsigned>((params.n_rows + kTile - 1) / kTile), static_cast<unsigned>(params.n_heads));
  const auto launch = [&](auto* kernel) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "head_matmul");
    launch_overlapped(device, kernel, grid, kThreads, kSharedBytes, "head_matmul", params);
  };
  if (dtype == DType::f16)
    launch(wide_head_kernel<__half>);
  else
    launch(wide_head_kernel<__nv_bfloat16>);
}

}  // namespace baton::cuda
