/// Grouped matmul for few places per expert. The warps of a block divide k among them and add their sums in order, so
/// a place has the same bits whatever the other places are.
///
/// Weights and places go from memory straight to the matrix units (direct_chunks.cuh), and need no shared memory.
#include <cstdint>

#include "kernels/cuda/device/direct_chunks.cuh"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/experts/grouped_kernels.h"
#include "kernels/cuda/experts/grouped_units.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;
/// Weight rows of a unit: two multiplications use the same fragment of places.
constexpr int kColumns = 32;
constexpr int kTile = 8;  ///< places of one multiplication
constexpr auto kStep = static_cast<int>(kGroupedSkinnyStep);
constexpr int kAhead = 2;    ///< steps whose loads are in flight
constexpr int kChunk = 8;    ///< numbers of one load
constexpr int kPadding = 4;  ///< after a row of sums, so that the lanes of a warp write to different banks
/// Places per expert, on average, up to which units of 8 places are used. They take fewer registers, so more blocks,
/// and an expert with more places has several units.
constexpr std::int64_t kFewPlaces = 2;

/// Sums of each warp for the places and columns of a unit.
template <int kMaxTiles>
using WarpSums = float[kWarps][kMaxTiles * kTile][kColumns + kPadding];

/// The sums of one warp over its steps: every kWarps-th from `warp` on.
template <class T, int kTiles, int kMaxTiles>
__device__ __forceinline__ void multiply_unit(const GroupedParams& p, const GroupedUnit& unit, int warp, int lane,
                                              WarpSums<kMaxTiles>& sums) {
  const int group = lane / 4;
  const int quarter = lane % 4;
  const auto* const x = static_cast<const T*>(p.x);
  const T* const weight = static_cast<const T*>(p.weight) + static_cast<std::int64_t>(unit.expert) * p.n * p.k;
  // Where this lane's numbers begin: of weight rows group, group + 8, group + 16, group + 24 (rows after the last are
  // the last), and of one place of each tile (-1: there is none).
  int weights[4];
  int places[kTiles];
#pragma unroll
  for (int i = 0; i < 4; ++i) weights[i] = min(unit.column + 8 * i + group, p.n - 1) * p.k + quarter * kChunk;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int place = tile * kTile + group;
    places[tile] = place < unit.n_places ? static_cast<int>(row_at(p, unit.place + place)) * p.k + quarter * kChunk : -1;
  }
  const int n_steps = p.k / kStep;
  uint4 a[kAhead][4];
  uint4 b[kAhead][kTiles];
  const auto load = [&](int step, uint4(&to_a)[4], uint4(&to_b)[kTiles]) {
    if (step >= n_steps) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) to_a[i] = load_chunk_once(weight + (weights[i] + step * kStep));
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      to_b[tile] =
          places[tile] < 0 ? make_uint4(0, 0, 0, 0) : __ldcg(reinterpret_cast<const uint4*>(x + (places[tile] + step * kStep)));
  };
  float c[2][kTiles][4] = {};
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(warp + i * kWarps, a[i], b[i]);
  for (int begin = warp; begin < n_steps; begin += kAhead * kWarps) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int step = begin + i * kWarps;
      if (step >= n_steps) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile)
          multiply_chunks<T>(c[half][tile], a[i][2 * half], a[i][2 * half + 1], b[i][tile]);
      load(step + kAhead * kWarps, a[i], b[i]);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[warp][tile * kTile + 2 * quarter + i % 2][16 * half + 8 * (i / 2) + group] = c[half][tile][i];
}

/// kMaxTiles: tiles of 8 places in a unit. Units with fewer places skip whole tiles.
template <class T, class Out, int kMaxTiles>
__global__ void __launch_bounds__(kThreads, kMaxTiles == 1 ? 3 : 2)
    grouped_skinny_kernel(const __grid_constant__ GroupedParams p) {
  constexpr int kPlaces = kMaxTiles * kTile;
  __shared__ UnitOffsets offsets;
  __shared__ WarpSums<kMaxTiles> sums;
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int lane = thread % kWarpSize;
  wait_for_kernel_before();
  let_next_kernel_start();  // not earlier: see GroupedMatmulArgs::routed_earlier
  count_units<kPlaces, kColumns>(p, offsets);
  auto* out = static_cast<Out*>(p.out);
  for (int index = static_cast<int>(blockIdx.x); index < offsets[p.n_experts]; index += static_cast<int>(gridDim.x)) {
    const GroupedUnit unit = unit_at<kPlaces, kColumns>(p, offsets, index);
    if constexpr (kMaxTiles == 1) {
      multiply_unit<T, 1, kMaxTiles>(p, unit, warp, lane, sums);
    } else {
      if (unit.n_places <= kTile)
        multiply_unit<T, 1, kMaxTiles>(p, unit, warp, lane, sums);
      else if (unit.n_places <= 2 * kTile)
        multiply_unit<T, 2, kMaxTiles>(p, unit, warp, lane, sums);
      else
        multiply_unit<T, kMaxTiles, kMaxTiles>(p, unit, warp, lane, sums);
    }
    __syncthreads();
    for (int i = thread; i < unit.n_places * kColumns; i += kThreads) {
      const int place = i / kColumns;
      const int column = i % kColumns;
      if (unit.column + column >= p.n) continue;
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += sums[w][place][column];
      out[static_cast<std::int64_t>(unit.place + place) * p.n + unit.column + column] =
          from_f32<Out>(sum + bias_at(p, unit.expert, unit.column + column));
    }
    __syncthreads();
  }
}

}  // namespace

void grouped_skinny(const Device& device, const GroupedMatmulArgs& args, const std::byte* weight) {
  check(fits_matrix_units(args, weight, kGroupedSkinnyStep), "grouped_skinny: a product that it does not take");
  const GroupedParams params = grouped_params(args, weight);
  const bool has_few = args.out.shape[0] <= kFewPlaces * args.experts->n_experts;
  const auto launch = [&](auto* kernel) {
    const dim3 grid(resident_blocks(device, kernel, kThreads));
    // Its loads pass through the L1. A block that started while route_experts runs would have none there: see
    // prefer_shared_memory.
    if (args.rows.data != nullptr) return launch_in_turn(device, kernel, grid, kThreads, 0, "grouped_matmul", params);
    launch_overlapped(device, kernel, grid, kThreads, 0, "grouped_matmul", params);
  };
  visit_operands(args.x.dtype, args.out.dtype, [&]<class T, class Out>(T, Out) {
    launch(has_few ? grouped_skinny_kernel<T, Out, 1> : grouped_skinny_kernel<T, Out, 4>);
  });
}

}  // namespace baton::cuda
