/// Grouped matmul by weights in 8 and 4 bits for few places per expert. Units have 32 rows of a weight and 8 places; the
/// warps of a block divide the columns among them and add their sums in order, so a place has the same bits whatever the
/// other places are. Weights come from memory straight into registers, and so does x.
#include <cstdint>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/experts/grouped_kernels.h"
#include "kernels/cuda/experts/grouped_scheme.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kPlaces = 8;   ///< of a unit
constexpr int kPadding = 4;  ///< after a row of sums, so that the lanes of a warp write to different banks

/// Stages whose loads are in flight: the less a stage has, the more.
constexpr int stages_ahead(WeightScheme scheme) { return kStagePieces(scheme) == 1 ? 3 : 2; }

using WarpSums = float[kWarps][kPlaces][kWarpRows + kPadding];

template <class T, WeightScheme kScheme>
__device__ __forceinline__ void multiply_unit(const GroupedSchemeParams& p, const GroupedUnit& unit, int warp, int lane,
                                              WarpSums& to) {
  constexpr int kAhead = stages_ahead(kScheme);
  const int k = p.group.k;
  const int group = lane / 4;
  const int first_column = lane % 4 * 8;
  const WeightReader<kScheme> reader(p.weight, unit.expert, unit.column / kWarpRows, lane);
  const bool has_place = group < unit.n_places;
  const T* const x =
      static_cast<const T*>(p.group.x) + row_at(p.group, unit.place + (has_place ? group : 0)) * k + first_column;
  const int n_stages = (k + kStageColumns - 1) / kStageColumns;
  HalfValues<kScheme> values[kAhead][2];
  StageGroups groups[kAhead];
  uint4 places[kAhead][2];
  const auto load_others = [&](int stage, StageGroups& to_groups, uint4(&to_places)[2]) {
    reader.load_groups(stage, to_groups);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int column = stage * kStageColumns + i * 32;
      to_places[i] =
          has_place && column + first_column < k ? __ldcg(reinterpret_cast<const uint4*>(x + column)) : make_uint4(0, 0, 0, 0);
    }
  };
  float sums[2][4] = {};
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int stage = warp + i * kWarps;
    if (stage >= n_stages) break;
    reader.load_values(stage, 0, values[i][0]);
    reader.load_values(stage, 1, values[i][1]);
    load_others(stage, groups[i], places[i]);
  }
  for (int begin = warp; begin < n_stages; begin += kAhead * kWarps) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int stage = begin + i * kWarps;
      if (stage >= n_stages) break;
      const int next = stage + kAhead * kWarps;
      StageScales scales;
      scales_of<kScheme>(p.weight, groups[i], scales);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        WideHalf wide;
        widen_half<T, kScheme>(p.weight, values[i][half], groups[i], half, wide);
        if (next < n_stages) reader.load_values(next, half, values[i][half]);
        multiply_half<T, kScheme>(wide, scales, half, places[i], sums[half]);
      }
      if (next < n_stages) load_others(next, groups[i], places[i]);
    }
  }
  reader.scale_rows(sums);
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    float of_place[4];
    sums_of_place(sums, e, of_place);
    store_f32(of_place, &to[warp][lane % 4 * 2 + e][group * 4]);
  }
}

template <class T, WeightScheme kScheme>
__global__ void __launch_bounds__(kThreads, 4) grouped_scheme_skinny_kernel(const __grid_constant__ GroupedSchemeParams p) {
  __shared__ UnitOffsets offsets;
  __shared__ __align__(16) WarpSums sums;
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int lane = thread % kWarpSize;
  wait_for_kernel_before();
  let_next_kernel_start();  // not earlier: see GroupedMatmulArgs::routed_earlier
  count_units<kPlaces, kWarpRows>(p.group, offsets);
  const int n_units = offsets[p.group.n_experts];
  for (int index = static_cast<int>(blockIdx.x); index < n_units; index += static_cast<int>(gridDim.x)) {
    const GroupedUnit unit = unit_at<kPlaces, kWarpRows>(p.group, offsets, index);
    multiply_unit<T, kScheme>(p, unit, warp, lane, sums);
    __syncthreads();
    visit_out(p, [&](auto* out) {
      for (int i = thread; i < unit.n_places * kWarpRows; i += kThreads) {
        const int place = i / kWarpRows;
        const int column = i % kWarpRows;
        if (unit.column + column >= p.group.n) continue;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) sum += sums[w][place][column];
        out[static_cast<std::int64_t>(unit.place + place) * p.group.n + unit.column + column] =
            from_f32<std::remove_pointer_t<decltype(out)>>(sum + bias_at(p.group, unit.expert, unit.column + column));
      }
    });
    __syncthreads();
  }
}

}  // namespace

void grouped_scheme_skinny(const Device& device, const GroupedMatmulArgs& args) {
  const GroupedSchemeParams params = grouped_scheme_params(args);
  visit_expert_scheme(args.experts->scheme, [&](auto scheme) {
    visit_x(args.x.dtype, [&](auto zero) {
      auto* const kernel = grouped_scheme_skinny_kernel<decltype(zero), decltype(scheme)::value>;
      launch_overlapped(device, kernel, dim3(resident_blocks(device, kernel, kThreads)), kThreads, 0, "grouped_matmul", params);
    });
  });
}

}  // namespace baton::cuda
