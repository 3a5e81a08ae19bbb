/// Grouped matmul for many places per expert: tiles of 64 places by 128 columns, whose operands pass through a ring of
/// three stages in shared memory. A stage has 64 numbers of each row, 128 bytes, with its 16-byte chunks swizzled so
/// that copies and matrix loads touch all banks.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/experts/grouped_kernels.h"
#include "kernels/cuda/experts/grouped_units.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kPlaces = 64;    ///< of a unit; each warp has all of them
constexpr int kColumns = 128;  ///< of a unit
constexpr int kWarpColumns = kColumns / kWarps;
constexpr auto kStep = static_cast<int>(kGroupedTilesStep);
constexpr int kStages = 3;
constexpr int kRowBytes = kStep * 2;
constexpr int kChunk = 8;  ///< numbers of one copy
constexpr int kChunks = kStep / kChunk;
constexpr int kRowsACopy = kThreads / kChunks;
constexpr int kPlaceBytes = kPlaces * kRowBytes;
constexpr int kStageBytes = (kPlaces + kColumns) * kRowBytes;
constexpr int kSharedBytes = kStages * kStageBytes;
constexpr int kPlaceTiles = kPlaces / 16;
constexpr int kColumnTiles = kWarpColumns / 8;

__device__ __forceinline__ void end_stage_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most kPending of this thread's last stages are still being copied.
template <int kPending>
__device__ __forceinline__ void wait_for_stages() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Address of a 16-byte chunk of a row in a swizzled tile.
__device__ __forceinline__ std::uint32_t chunk_address(std::uint32_t tile, int row, int chunk) {
  return tile + static_cast<std::uint32_t>(row * kRowBytes + ((chunk ^ (row % 8)) * 16));
}

/// What a thread copies of each step: one chunk of every kRowsACopy-th row, from the same chunk on.
template <class T>
struct Sources {
  const T* places[kPlaces / kRowsACopy];
  const T* columns[kColumns / kRowsACopy];
};

/// Places and columns after the unit's last are the last: they are multiplied and not stored.
template <class T>
__device__ __forceinline__ Sources<T> sources_of(const GroupedParams& p, const GroupedUnit& unit, int thread) {
  const int row = thread / kChunks;
  const int first = thread % kChunks * kChunk;
  Sources<T> sources;
#pragma unroll
  for (int i = 0; i < kPlaces / kRowsACopy; ++i) {
    const int place = unit.place + min(row + i * kRowsACopy, unit.n_places - 1);
    sources.places[i] = static_cast<const T*>(p.x) + row_at(p, place) * p.k + first;
  }
  const T* const of_expert = static_cast<const T*>(p.weight) + static_cast<std::int64_t>(unit.expert) * p.n * p.k;
#pragma unroll
  for (int i = 0; i < kColumns / kRowsACopy; ++i)
    sources.columns[i] = of_expert + static_cast<std::int64_t>(min(unit.column + row + i * kRowsACopy, p.n - 1)) * p.k + first;
  return sources;
}

template <class T>
__device__ __forceinline__ void copy_stage(const Sources<T>& sources, std::uint32_t stage, int step, int thread) {
  const int row = thread / kChunks;
  const int chunk = thread % kChunks;
#pragma unroll
  for (int i = 0; i < kPlaces / kRowsACopy; ++i)
    copy_16(chunk_address(stage, row + i * kRowsACopy, chunk), sources.places[i] + static_cast<std::int64_t>(step) * kStep);
#pragma unroll
  for (int i = 0; i < kColumns / kRowsACopy; ++i)
    copy_16(chunk_address(stage + kPlaceBytes, row + i * kRowsACopy, chunk),
            sources.columns[i] + static_cast<std::int64_t>(step) * kStep);
}

/// Adds a stage's matmuls to the sums of a warp.
template <class T>
__device__ __forceinline__ void multiply_stage(std::uint32_t stage, int warp, int lane,
                                               float (&sums)[kPlaceTiles * kColumnTiles][4]) {
#pragma unroll
  for (int k = 0; k < kStep / 16; ++k) {
    std::uint32_t a[kPlaceTiles][4];
    std::uint32_t b[kColumnTiles / 2][4];
#pragma unroll
    for (int i = 0; i < kPlaceTiles; ++i) load_matrices(a[i], chunk_address(stage, i * 16 + lane % 16, 2 * k + lane / 16));
#pragma unroll
    for (int j = 0; j < kColumnTiles / 2; ++j)
      load_matrices(b[j], chunk_address(stage + kPlaceBytes, warp * kWarpColumns + j * 16 + lane / 16 * 8 + lane % 8,
                                        2 * k + lane / 8 % 2));
#pragma unroll
    for (int i = 0; i < kPlaceTiles; ++i)
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j)
        multiply_16x8x16<T>(sums[i * kColumnTiles + j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
  }
}

template <class Out>
__device__ __forceinline__ void store_unit(const GroupedParams& p, const GroupedUnit& unit, int warp, int lane,
                                           const float (&sums)[kPlaceTiles * kColumnTiles][4]) {
  auto* out = static_cast<Out*>(p.out);
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
    const int column = unit.column + warp * kWarpColumns + j * 8 + lane % 4 * 2;
    if (column >= p.n) continue;
    const float bias[2] = {bias_at(p, unit.expert, column), bias_at(p, unit.expert, column + 1)};
#pragma unroll
    for (int i = 0; i < kPlaceTiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int place = i * 16 + half * 8 + lane / 4;
        if (place >= unit.n_places) continue;
        const float(&of_tile)[4] = sums[i * kColumnTiles + j];
        const float pair[2] = {of_tile[2 * half] + bias[0], of_tile[2 * half + 1] + bias[1]};
        store_f32(pair, out + static_cast<std::int64_t>(unit.place + place) * p.n + column);
      }
  }
}

template <class T, class Out>
__global__ void __launch_bounds__(kThreads) grouped_tiles_kernel(const __grid_constant__ GroupedParams p) {
  extern __shared__ __align__(128) std::byte ring[];
  __shared__ UnitOffsets offsets;
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int lane = thread % kWarpSize;
  const std::uint32_t first_stage = shared_address(ring);
  const int n_steps = p.k / kStep;
  wait_for_kernel_before();
  count_units<kPlaces, kColumns>(p, offsets);
  for (int index = static_cast<int>(blockIdx.x); index < offsets[p.n_experts]; index += static_cast<int>(gridDim.x)) {
    const GroupedUnit unit = unit_at<kPlaces, kColumns>(p, offsets, index);
    const Sources<T> sources = sources_of<T>(p, unit, thread);
    __syncthreads();  // all warps have multiplied the last stages of the unit before
    // A group of copies for each step, also for steps after the last, so that the number of groups counts steps.
#pragma unroll
    for (int step = 0; step < kStages - 1; ++step) {
      if (step < n_steps) copy_stage(sources, first_stage + step * kStageBytes, step, thread);
      end_stage_copies();
    }
    float sums[kPlaceTiles * kColumnTiles][4] = {};
    for (int step = 0; step < n_steps; ++step) {
      wait_for_stages<kStages - 2>();
      __syncthreads();  // the step's stage has arrived for all threads, and the stage before it has been multiplied
      const int next = step + kStages - 1;
      if (next < n_steps) copy_stage(sources, first_stage + next % kStages * kStageBytes, next, thread);
      end_stage_copies();
      multiply_stage<T>(as_of_now(first_stage + step % kStages * kStageBytes), warp, lane, sums);
      own_accumulators(sums);
    }
    store_unit<Out>(p, unit, warp, lane, sums);
  }
}

}  // namespace

void grouped_tiles(const Device& device, const GroupedMatmulArgs& args, const std::byte* weight) {
  check(fits_matrix_units(args, weight, kGroupedTilesStep), "grouped_tiles: a product that it does not take");
  const GroupedParams params = grouped_params(args, weight);
  const auto launch = [&](auto* kernel) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "grouped_matmul");
    int n_blocks = 0;
    check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n_blocks, kernel, kThreads, kSharedBytes), "grouped_matmul");
    launch_overlapped(device, kernel, dim3(static_cast<unsigned>(std::max(1, n_blocks) * device.n_multiprocessors)), kThreads,
                      kSharedBytes, "grouped_matmul", params);
  };
  visit_operands(args.x.dtype, args.out.dtype, [&]<class T, class Out>(T, Out) { launch(grouped_tiles_kernel<T, Out>); });
}

}  // namespace baton::cuda
