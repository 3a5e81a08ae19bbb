/// Grouped matmul by weights in 8 and 4 bits without matrix units: a block has 32 rows of a weight and some places, each of
/// its warps every eighth stage of columns.
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/experts/grouped_kernels.h"
#include "kernels/cuda/experts/grouped_scheme.cuh"

namespace baton::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kPlaces = 4;  ///< of a unit

/// Adds a chunk of columns to the sums of the lane's four rows of the weight. x: a row for each place.
template <WeightScheme kScheme, class T>
__device__ __forceinline__ void add_chunk(const GroupedSchemeParams& p, const GroupedUnit& unit, std::int64_t tile, int chunk,
                                          int lane, const T* const (&x)[kPlaces], float (&sums)[4][kPlaces]) {
  constexpr int kColumns = chunk_columns(kScheme);
  const std::int32_t* const order = p.permutations == nullptr ? nullptr : p.permutations + unit.expert * p.weight.k;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int thread = unit.column % kSchemeTileRows * 2 + half * kWarpSize + lane;  // of the tile's pieces
    const uint4 raw =
        reinterpret_cast<const uint4*>(p.weight.values)[(tile * p.weight.n_chunks + chunk) * (kPieceBytes / 16) + thread];
    const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int step = 0; step < kColumns / 16; ++step)
#pragma unroll
      for (int i = 0; i < 4; i += 2)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = chunk * kColumns + lane_column(thread, step, i, e);
          if (column >= p.weight.k) continue;
          const int of_x = order == nullptr ? column : order[column];
          float values[kPlaces];
#pragma unroll
          for (int place = 0; place < kPlaces; ++place) values[place] = to_f32(x[place][of_x]);
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const int row = lane_row(thread, j);
            const float code = code_at<kScheme>(words[fragment_word(kScheme, step, i + j)], i + j, e);
            const float weight = (code - zero_at<kScheme>(p.weight, tile, row, column)) * scale_at(p.weight, tile, row, column);
#pragma unroll
            for (int place = 0; place < kPlaces; ++place)
              sums[2 * half + j][place] = fmaf(weight, values[place], sums[2 * half + j][place]);
          }
        }
  }
}

template <WeightScheme kScheme, class T>
__global__ void __launch_bounds__(kThreads) grouped_scheme_general_kernel(const __grid_constant__ GroupedSchemeParams p) {
  __shared__ UnitOffsets offsets;
  __shared__ float of_warps[kWarps][kWarpRows][kPlaces];
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int lane = thread % kWarpSize;
  wait_for_kernel_before();
  count_units<kPlaces, kWarpRows>(p.group, offsets);
  const int n_units = offsets[p.group.n_experts];
  for (int index = static_cast<int>(blockIdx.x); index < n_units; index += static_cast<int>(gridDim.x)) {
    const GroupedUnit unit = unit_at<kPlaces, kWarpRows>(p.group, offsets, index);
    const std::int64_t tile = static_cast<std::int64_t>(unit.expert) * p.weight.n_tiles + unit.column / kSchemeTileRows;
    const T* x[kPlaces];
#pragma unroll
    for (int i = 0; i < kPlaces; ++i)
      x[i] = static_cast<const T*>(p.group.x) + row_at(p.group, unit.place + min(i, unit.n_places - 1)) * p.group.k;
    float sums[4][kPlaces] = {};
    for (int chunk = warp; chunk < p.weight.n_chunks; chunk += kWarps) add_chunk<kScheme>(p, unit, tile, chunk, lane, x, sums);
#pragma unroll
    for (int row = 0; row < 4; ++row)
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) {
        float sum = sums[row][i];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (lane % 4 == 0) of_warps[warp][lane / 4 * 4 + row][i] = sum;
      }
    __syncthreads();
    const int place = thread / kWarpRows;
    const int column = unit.column + thread % kWarpRows;
    if (place < unit.n_places && column < p.group.n) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += of_warps[w][thread % kWarpRows][place];
      visit_out(p, [&](auto* out) {
        out[static_cast<std::int64_t>(unit.place + place) * p.group.n + column] =
            from_f32<std::remove_pointer_t<decltype(out)>>(sum + bias_at(p.group, unit.expert, column));
      });
    }
    __syncthreads();
  }
}

}  // namespace

void grouped_scheme_general(const Device& device, const GroupedMatmulArgs& args) {
  const GroupedSchemeParams params = grouped_scheme_params(args);
  visit_expert_scheme(args.experts->scheme, [&](auto scheme) {
    visit_element(args.x.dtype, [&](auto zero) {
      auto* const kernel = grouped_scheme_general_kernel<decltype(scheme)::value, decltype(zero)>;
      launch_overlapped(device, kernel, dim3(resident_blocks(device, kernel, kThreads)), kThreads, 0, "grouped_matmul", params);
    });
  });
}

}  // namespace baton::cuda
