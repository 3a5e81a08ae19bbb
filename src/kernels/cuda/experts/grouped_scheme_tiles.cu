/// Grouped matmul by weights in 8 and 4 bits for many places per expert. Units have 128 rows of a weight, 32 for each warp,
/// and 32 or 64 places. x passes through a ring in shared memory that all warps read; weights come from memory straight into
/// registers, and are widened once for all places of the unit.
#include <cstdint>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/experts/grouped_kernels.h"
#include "kernels/cuda/experts/grouped_scheme.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = kThreads;  ///< of the weight, of a unit
constexpr int kRingStages = 4;
constexpr int kRowBytes = kStageColumns * 2;
constexpr int kChunk = 8;  ///< numbers of one copy
constexpr int kChunks = kStageColumns / kChunk;
constexpr int kRowsACopy = kThreads / kChunks;

/// A kernel's unit of kTiles times 8 places.
template <int kTiles>
struct TilesForm {
  static constexpr int kPlaces = kTiles * 8;
  static constexpr int kRingBytes = kRingStages * kPlaces * kRowBytes;
  static constexpr int kCopies = kPlaces / kRowsACopy;  ///< of a thread and stage
  /// Stages of the weight whose loads are in flight. Where sums take most registers, few weights are read for many matmuls.
  static constexpr int kAhead = kTiles <= 4 ? 2 : 1;
  static constexpr int kResidents = kTiles <= 4 ? 3 : 2;  ///< blocks a multiprocessor
};

__device__ __forceinline__ void end_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most kPending of this thread's last stages are still being copied.
template <int kPending>
__device__ __forceinline__ void wait_for_stage() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
/// Copies 16 bytes, or writes zeros.
__device__ __forceinline__ void copy_16_if(bool exists, std::uint32_t to, const void* from) {
  const int n_bytes = exists ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(n_bytes) : "memory");
}

/// Address of a 16-byte chunk of a row: eight lanes read four chunks of two rows at once.
__device__ __forceinline__ std::uint32_t x_address(std::uint32_t stage, int row, int chunk) {
  return stage + static_cast<std::uint32_t>(row * kRowBytes + ((chunk ^ (row % 2 * 4)) * 16));
}

/// What a thread copies of each stage of x: one chunk of every kRowsACopy-th row, from the same chunk on. Places after the
/// unit's last are the last: they are multiplied and not stored.
template <class T, int kTiles>
class XCopies {
  using Form = TilesForm<kTiles>;

 public:
  __device__ __forceinline__ XCopies(const GroupedParams& p, const GroupedUnit& unit, int thread)
      : row_(thread / kChunks), chunk_(thread % kChunks), k_(p.k) {
#pragma unroll
    for (int i = 0; i < Form::kCopies; ++i)
      from_[i] = static_cast<const T*>(p.x) + row_at(p, unit.place + min(row_ + i * kRowsACopy, unit.n_places - 1)) * p.k +
                 chunk_ * kChunk;
  }
  __device__ __forceinline__ void copy(int stage, std::uint32_t to) const {
    const int column = stage * kStageColumns;
    const bool exists = column + chunk_ * kChunk < k_;
#pragma unroll
    for (int i = 0; i < Form::kCopies; ++i)
      copy_16_if(exists, x_address(to, row_ + i * kRowsACopy, chunk_), exists ? from_[i] + column : from_[i]);
  }

 private:
  const T* from_[Form::kCopies];
  int row_;
  int chunk_;
  int k_;
};

template <class T, WeightScheme kScheme, int kTiles>
__device__ __forceinline__ void multiply_tiles(const GroupedSchemeParams& p, const GroupedUnit& unit, std::uint32_t ring,
                                               float (&sums)[kTiles][2][4]) {
  using Form = TilesForm<kTiles>;
  constexpr int kStageBytes = Form::kPlaces * kRowBytes;
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpSize;
  const XCopies<T, kTiles> copies(p.group, unit, thread);
  const WeightReader<kScheme> reader(p.weight, unit.expert, unit.column / kWarpRows + thread / kWarpSize, lane);
  const int n_stages = (p.group.k + kStageColumns - 1) / kStageColumns;
  __syncthreads();  // all warps have multiplied the last stages of the unit before
  // A group of copies for each stage, also for stages after the last, so that the number of groups counts stages.
#pragma unroll
  for (int stage = 0; stage < kRingStages - 1; ++stage) {
    if (stage < n_stages) copies.copy(stage, ring + stage * kStageBytes);
    end_stage();
  }
  HalfValues<kScheme> values[Form::kAhead][2];
  StageGroups groups[Form::kAhead];
  const auto load = [&](int stage, HalfValues<kScheme>(&to_values)[2], StageGroups& to_groups) {
    if (stage >= n_stages) return;
    reader.load_values(stage, 0, to_values[0]);
    reader.load_values(stage, 1, to_values[1]);
    reader.load_groups(stage, to_groups);
  };
#pragma unroll
  for (int i = 0; i < Form::kAhead; ++i) load(i, values[i], groups[i]);
  for (int begin = 0; begin < n_stages; begin += Form::kAhead) {
#pragma unroll
    for (int i = 0; i < Form::kAhead; ++i) {
      const int stage = begin + i;
      if (stage >= n_stages) break;
      StageScales scales;
      scales_of<kScheme>(p.weight, groups[i], scales);
      WideHalf wide[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) widen_half<T, kScheme>(p.weight, values[i][half], groups[i], half, wide[half]);
      load(stage + Form::kAhead, values[i], groups[i]);
      wait_for_stage<kRingStages - 2>();
      __syncthreads();  // the stage has arrived for all threads, and the stage before it has been multiplied
      const int next = stage + kRingStages - 1;
      if (next < n_stages) copies.copy(next, ring + next % kRingStages * kStageBytes);
      end_stage();
      const std::uint32_t x = ring + stage % kRingStages * kStageBytes;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile % 2 == 0 && tile > 0 && tile * 8 >= unit.n_places) break;
        uint4 places[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) places[half] = load_shared(x_address(x, tile * 8 + lane / 4, half * 4 + lane % 4));
#pragma unroll
        for (int half = 0; half < 2; ++half) multiply_half<T, kScheme>(wide[half], scales, half, places, sums[tile][half]);
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) reader.scale_rows(sums[tile]);
}

/// Stores the lane's four rows of the weight for its places.
template <int kTiles, class Out>
__device__ __forceinline__ void store_tiles(const GroupedSchemeParams& p, const GroupedUnit& unit,
                                            const float (&sums)[kTiles][2][4], Out* out) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpSize;
  const int n = p.group.n;
  const int column = unit.column + thread / kWarpSize * kWarpRows + lane / 4 * 4;
  float bias[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) bias[i] = bias_at(p.group, unit.expert, min(column + i, n - 1));
  const bool is_whole = n % 4 == 0 && reinterpret_cast<std::uintptr_t>(out) % (4 * sizeof(Out)) == 0;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int place = tile * 8 + lane % 4 * 2 + e;
      if (place >= unit.n_places || column >= n) continue;
      float of_place[4];
      sums_of_place(sums[tile], e, of_place);
#pragma unroll
      for (int i = 0; i < 4; ++i) of_place[i] += bias[i];
      Out* const to = out + static_cast<std::int64_t>(unit.place + place) * n + column;
      if (is_whole) {
        store_f32(of_place, to);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (column + i < n) to[i] = from_f32<Out>(of_place[i]);
      }
    }
}

template <class T, WeightScheme kScheme, int kTiles>
__global__ void __launch_bounds__(kThreads, TilesForm<kTiles>::kResidents)
    grouped_scheme_tiles_kernel(const __grid_constant__ GroupedSchemeParams p) {
  constexpr int kPlaces = TilesForm<kTiles>::kPlaces;
  __shared__ UnitOffsets offsets;
  __shared__ __align__(128) std::byte ring[TilesForm<kTiles>::kRingBytes];
  wait_for_kernel_before();
  count_units<kPlaces, kRows>(p.group, offsets);
  const int n_units = offsets[p.group.n_experts];
  for (int index = static_cast<int>(blockIdx.x); index < n_units; index += static_cast<int>(gridDim.x)) {
    const GroupedUnit unit = unit_at<kPlaces, kRows>(p.group, offsets, index);
    float sums[kTiles][2][4] = {};
    multiply_tiles<T, kScheme, kTiles>(p, unit, shared_address(ring), sums);
    visit_out(p, [&](auto* out) { store_tiles(p, unit, sums, out); });
  }
}

}  // namespace

void grouped_scheme_tiles(const Device& device, const GroupedMatmulArgs& args, int n_places) {
  const GroupedSchemeParams params = grouped_scheme_params(args);
  const auto launch = [&](auto* kernel) {
    launch_overlapped(device, kernel, dim3(resident_blocks(device, kernel, kThreads)), kThreads, 0, "grouped_matmul", params);
  };
  visit_expert_scheme(args.experts->scheme, [&](auto scheme) {
    visit_x(args.x.dtype, [&](auto zero) {
      constexpr WeightScheme kScheme = decltype(scheme)::value;
      using T = decltype(zero);
      launch(n_places <= 32 ? grouped_scheme_tiles_kernel<T, kScheme, 4> : grouped_scheme_tiles_kernel<T, kScheme, 8>);
    });
  });
}

}  // namespace baton::cuda
