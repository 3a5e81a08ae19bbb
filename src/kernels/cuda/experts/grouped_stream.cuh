/// Grouped matmul that streams weights through shared memory, for few places per expert. A unit has 64 rows of a weight and 8
/// places, or 16. Each warp has a ring of its own, which the copy engine fills: a warp asks for stages of its next unit while it
/// multiplies those of this one, so memory never waits for the end of a unit, and warps wait for no other.
///
/// Each warp computes whole units or, of dense weights and those with many columns or few units, neighbouring warps divide the
/// stages of a unit among them and add their sums in order. So a place has the same bits whatever the other places are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/experts/grouped_scheme.cuh"
#include "kernels/cuda/experts/grouped_units.cuh"
#include "kernels/cuda/experts/stream_stages.cuh"

namespace baton::cuda {

/// Warps of a block: widening 8 and 4 bits takes more of them, and registers of fewer matrix fragments.
constexpr int stream_warps(WeightScheme scheme) { return scheme == WeightScheme::dense ? 8 : 16; }
/// Places that one multiplication of the matrix units takes.
constexpr int kPlaceTile = 8;
/// Stages whose x is on its way to registers, in units of `n_tiles` times 8 places.
constexpr int stages_of_x(WeightScheme scheme, int n_tiles) { return scheme == WeightScheme::dense && n_tiles == 1 ? 4 : 2; }
constexpr int kMostRingStages = 6;  ///< of a warp
constexpr int kSumsPadding = 4;     ///< after a row of sums, so that the lanes of a warp write to different banks

/// What a block of `kWarps` warps has beside the rings. Only where `kHasSums` its warps' sums pass through shared memory.
template <int kWarps, int kTiles, bool kHasSums>
struct GroupedStreamMemory {
  float sums[kHasSums ? kWarps : 1][kTiles * kPlaceTile][kStreamRows + kSumsPadding];
  UnitOffsets units;    ///< before each expert
  UnitOffsets offsets;  ///< the places
  int of_warps[kWarps];
  alignas(8) std::uint64_t barriers[kWarps][kMostRingStages];
};
/// Sums of dense weights lie in the order of swizzled rows. Those of others go to out from registers, unless warps add them.
constexpr bool has_stream_sums(WeightScheme scheme, int shares) { return scheme == WeightScheme::dense || shares > 1; }
template <WeightScheme kScheme, int kTiles, int kShares>
using StreamMemoryOf = GroupedStreamMemory<stream_warps(kScheme), kTiles, has_stream_sums(kScheme, kShares)>;

#ifdef BATON_SM90A

/// Reads the offsets and counts the units before each expert. All threads of the block call it; it ends with a barrier.
template <int kWarps, int kTiles, bool kHasSums>
__device__ __forceinline__ void count_stream_units(const GroupedParams& p,
                                                   GroupedStreamMemory<kWarps, kTiles, kHasSums>& memory) {
  constexpr int kPlaces = kTiles * kPlaceTile;
  constexpr int kThreads = kWarps * kWarpSize;
  constexpr int kPerThread = kMaxExperts / kThreads;
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int lane = thread % kWarpSize;
  const int n_slices = (p.n + kStreamRows - 1) / kStreamRows;
  int places[kPerThread + 1];
#pragma unroll
  for (int i = 0; i <= kPerThread; ++i) places[i] = __ldcg(p.offsets + min(thread * kPerThread + i, p.n_experts));
  int units[kPerThread];
  int own = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    units[i] = (places[i + 1] - places[i] + kPlaces - 1) / kPlaces * n_slices;
    own += units[i];
  }
  int sum = own;
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane + 1 == kWarpSize) memory.of_warps[warp] = sum;
  __syncthreads();
  int at = sum - own;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) at += w < warp ? memory.of_warps[w] : 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int expert = thread * kPerThread + i;
    if (expert > p.n_experts) break;
    memory.offsets[expert] = places[i];
    memory.units[expert] = at;
    at += units[i];
  }
  if (thread + 1 == kThreads && p.n_experts == kMaxExperts) {
    memory.offsets[kMaxExperts] = places[kPerThread];
    memory.units[kMaxExperts] = at;
  }
  __syncthreads();
}

/// As unit_at, from shared memory.
template <int kPlaces, class Memory>
__device__ __forceinline__ GroupedUnit stream_unit_at(const GroupedParams& p, const Memory& memory, int index) {
  int expert = 0;
  for (int end = p.n_experts; expert + 1 < end;) {  // the last expert with units[expert] <= index
    const int middle = (expert + end) / 2;
    if (memory.units[middle] <= index)
      expert = middle;
    else
      end = middle;
  }
  const int first = memory.offsets[expert];
  const int end = memory.offsets[expert + 1];
  const int n_tiles = (end - first + kPlaces - 1) / kPlaces;
  const int of_expert = index - memory.units[expert];
  const int place = first + of_expert % n_tiles * kPlaces;
  return {expert, place, min(kPlaces, end - place), of_expert / n_tiles * kStreamRows};
}

/// One warp's way through its units. kShares: warps that divide a unit's stages, neighbours in a block.
template <class T, class Stage, int kTiles, int kShares>
class UnitStreamer {
  static constexpr int kWarps = stream_warps(Stage::kScheme);
  static constexpr int kPlaces = kTiles * kPlaceTile;
  static constexpr int kXAhead = stages_of_x(Stage::kScheme, kTiles);
  using Memory = StreamMemoryOf<Stage::kScheme, kTiles, kShares>;
  using Sums = float[kTiles][4][4];

 public:
  __device__ __forceinline__ UnitStreamer(const GroupedStreamParams& p, const CUtensorMap* map, Memory& memory,
                                          std::uint32_t rings)
      : p_(p),
        map_(map),
        memory_(memory),
        warp_(static_cast<int>(threadIdx.x) / kWarpSize),
        lane_(static_cast<int>(threadIdx.x) % kWarpSize),
        ring_(rings + warp_ * p.n_ring_stages * p.stage_bytes),
        barriers_(shared_address(memory.barriers[warp_])),
        policy_(read_once_policy()),
        n_units_(memory.units[p.scheme.group.n_experts]),
        n_stages_((p.scheme.group.k + kStreamColumns - 1) / kStreamColumns) {
    // Neighbouring units go to different multiprocessors.
    const auto block = static_cast<int>(blockIdx.x);
    const auto n_blocks = static_cast<int>(gridDim.x);
    index_ = warp_ / kShares * n_blocks + block;
    stride_ = kWarps / kShares * n_blocks;
    first_stage_ = warp_ % kShares;
    asked_index_ = index_;
    asked_stage_ = first_stage_;
    if (asked_index_ < n_units_) asked_ = stream_unit_at<kPlaces>(p.scheme.group, memory, asked_index_);
    for (int i = 0; i < p.n_ring_stages; ++i) ask();
  }

  __device__ __forceinline__ void run() {
    for (; index_ < n_units_; index_ += stride_) {
      const GroupedUnit unit = stream_unit_at<kPlaces>(p_.scheme.group, memory_, index_);
      Sums sums = {};
      multiply(unit, sums);
      if constexpr (has_stream_sums(Stage::kScheme, kShares)) {
        keep(sums);
        sync_group();
        store_kept(unit);
        sync_group();
      } else {
        store(unit, sums);
      }
    }
  }

 private:
  /// A barrier of the warps that share units.
  __device__ __forceinline__ void sync_group() const {
    __syncwarp();
    if constexpr (kShares > 1) named_barrier(1 + warp_ / kShares, kShares * kWarpSize);
  }

  /// Asks for the next stage, if there is one.
  __device__ __forceinline__ void ask() {
    if (asked_stage_ >= n_stages_) {  // also where a warp has no share of a unit
      do {
        asked_index_ += stride_;
        asked_stage_ = first_stage_;
        if (asked_index_ >= n_units_) break;
      } while (asked_stage_ >= n_stages_);
      if (asked_index_ < n_units_) asked_ = stream_unit_at<kPlaces>(p_.scheme.group, memory_, asked_index_);
    }
    if (asked_index_ >= n_units_) {
      asked_stage_ = n_stages_;
      return;
    }
    if (lane_ == 0)
      Stage::copy(p_, map_, asked_.expert, asked_.column, asked_stage_, ring_ + asked_slot_ * p_.stage_bytes,
                  barriers_ + 8 * asked_slot_, policy_);
    if (++asked_slot_ == p_.n_ring_stages) asked_slot_ = 0;
    asked_stage_ += kShares;
  }

  __device__ __forceinline__ void multiply(const GroupedUnit& unit, Sums& sums) {
    const int k = p_.scheme.group.k;
    const int first_column = lane_ % 4 * 8;
    const T* x[kTiles];
    bool has_place[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int place = tile * kPlaceTile + lane_ / 4;
      has_place[tile] = place < unit.n_places;
      x[tile] = static_cast<const T*>(p_.scheme.group.x) +
                row_at(p_.scheme.group, unit.place + (has_place[tile] ? place : 0)) * k + first_column;
    }
    const auto load_x = [&](int stage, uint4(&to)[kTiles][2]) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = stage * kStreamColumns + i * 32;
          to[tile][i] = has_place[tile] && column + first_column < k ? __ldcg(reinterpret_cast<const uint4*>(x[tile] + column))
                                                                     : make_uint4(0, 0, 0, 0);
        }
    };
    uint4 places[kXAhead][kTiles][2];
#pragma unroll
    for (int i = 0; i < kXAhead; ++i) load_x(first_stage_ + i * kShares, places[i]);
    for (int begin = first_stage_; begin < n_stages_; begin += kXAhead * kShares) {
#pragma unroll
      for (int i = 0; i < kXAhead; ++i) {
        const int stage = begin + i * kShares;
        if (stage >= n_stages_) break;
        barrier_wait(barriers_ + 8 * slot_, parity_);
        typename Stage::Values values;
        Stage::load(p_, as_of_now(ring_ + slot_ * p_.stage_bytes), stage, lane_, values);
        if (++slot_ == p_.n_ring_stages) {
          slot_ = 0;
          parity_ ^= 1;
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          if (tile > 0 && tile * kPlaceTile >= unit.n_places) break;
          Stage::multiply(p_, values, places[i][tile], sums[tile]);
        }
        own_accumulators(sums[0]);  // so the stage has been read
        __syncwarp();
        ask();
        load_x(stage + kXAhead * kShares, places[i]);
      }
    }
    if constexpr (Stage::kScheme == WeightScheme::f4) scale_rows(unit, sums);
  }

  /// Multiplies the sums of f4 by the scales of the rows.
  __device__ __forceinline__ void scale_rows(const GroupedUnit& unit, Sums& sums) const {
    const SchemeView& weight = p_.scheme.weight;
    const std::int64_t tile = static_cast<std::int64_t>(unit.expert) * weight.n_tiles + unit.column / kStreamRows;
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      const float4 scales = __ldg(
          reinterpret_cast<const float4*>(weight.row_scales + tile * kSchemeTileRows + block * kWarpRows + lane_ / 4 * 4));
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          sums[tile][2 * block][e] *= scales.x;
          sums[tile][2 * block][2 + e] *= scales.y;
          sums[tile][2 * block + 1][e] *= scales.z;
          sums[tile][2 * block + 1][2 + e] *= scales.w;
        }
    }
  }

  /// Writes the sums to shared memory.
  __device__ __forceinline__ void keep(const Sums& sums) const {
    float(&to)[kPlaces][kStreamRows + kSumsPadding] = memory_.sums[warp_];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
      for (int part = 0; part < 4; ++part)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          to[tile * kPlaceTile + lane_ % 4 * 2 + i % 2][Stage::row_of(lane_, part, i / 2)] = sums[tile][part][i];
  }

  /// From registers: a lane has four adjacent rows of the weight, twice.
  __device__ __forceinline__ void store(const GroupedUnit& unit, const Sums& sums) const {
    const int n = p_.scheme.group.n;
    visit_out(p_.scheme, [&](auto* out) {
      using Out = std::remove_pointer_t<decltype(out)>;
      const bool is_whole = n % 4 == 0 && reinterpret_cast<std::uintptr_t>(out) % (4 * sizeof(Out)) == 0;
#pragma unroll
      for (int block = 0; block < 2; ++block) {
        const int column = unit.column + block * kWarpRows + lane_ / 4 * 4;
        if (column >= n) continue;
        float bias[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) bias[i] = bias_at(p_.scheme.group, unit.expert, min(column + i, n - 1));
#pragma unroll
        for (int i = 0; i < 2 * kTiles; ++i) {
          const int tile = i / 2;
          const int place = tile * kPlaceTile + lane_ % 4 * 2 + i % 2;
          if (place >= unit.n_places) continue;
          float of_place[4];
#pragma unroll
          for (int row = 0; row < 4; ++row) of_place[row] = sums[tile][2 * block + row / 2][row % 2 * 2 + i % 2] + bias[row];
          Out* const to = out + static_cast<std::int64_t>(unit.place + place) * n + column;
          if (is_whole) {
            store_f32(of_place, to);
          } else {
#pragma unroll
            for (int row = 0; row < 4; ++row)
              if (column + row < n) to[row] = from_f32<Out>(of_place[row]);
          }
        }
      }
    });
  }

  /// From shared memory, by all warps that share the unit: its sums are theirs in order.
  __device__ __forceinline__ void store_kept(const GroupedUnit& unit) const {
    constexpr int kGroupThreads = kShares * kWarpSize;
    const int n = p_.scheme.group.n;
    const int first_warp = warp_ / kShares * kShares;
    visit_out(p_.scheme, [&](auto* out) {
      using Out = std::remove_pointer_t<decltype(out)>;
      for (int i = static_cast<int>(threadIdx.x) % kGroupThreads; i < unit.n_places * kStreamRows; i += kGroupThreads) {
        const int place = i / kStreamRows;
        const int column = i % kStreamRows;
        if (unit.column + column >= n) continue;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kShares; ++w) sum += memory_.sums[first_warp + w][place][column];
        out[static_cast<std::int64_t>(unit.place + place) * n + unit.column + column] =
            from_f32<Out>(sum + bias_at(p_.scheme.group, unit.expert, unit.column + column));
      }
    });
  }

  const GroupedStreamParams& p_;
  const CUtensorMap* map_;
  Memory& memory_;
  int warp_;
  int lane_;
  std::uint32_t ring_;
  std::uint32_t barriers_;
  std::uint64_t policy_;
  int n_units_;
  int n_stages_;
  int index_;
  int stride_;
  int first_stage_;
  int slot_ = 0;
  int parity_ = 0;
  GroupedUnit asked_{};  ///< the unit of the next stage to ask for
  int asked_index_;
  int asked_stage_;
  int asked_slot_ = 0;
};

#endif  // BATON_SM90A

/// `map` describes dense weights.
template <class T, WeightScheme kScheme, int kTiles, int kShares>
__global__ void __launch_bounds__(stream_warps(kScheme) * kWarpSize, 1)
    grouped_stream_kernel([[maybe_unused]] const __grid_constant__ GroupedStreamParams p,
                          [[maybe_unused]] const __grid_constant__ CUtensorMap map) {
#ifdef BATON_SM90A
  extern __shared__ __align__(1024) std::byte rings[];
  using Memory = StreamMemoryOf<kScheme, kTiles, kShares>;
  Memory& memory = *reinterpret_cast<Memory*>(rings + stream_warps(kScheme) * p.n_ring_stages * p.stage_bytes);
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < stream_warps(kScheme)) {
    for (int i = 0; i < p.n_ring_stages; ++i) barrier_init(shared_address(&memory.barriers[thread][i]), 1);
    show_barriers_to_copies();
  }
  if (!p.reads_ahead) wait_for_kernel_before();
  count_stream_units(p.scheme.group, memory);
  using Stage = std::conditional_t<kScheme == WeightScheme::dense, DenseStage<T>, SchemeStage<T, kScheme>>;
  UnitStreamer<T, Stage, kTiles, kShares> streamer(p, &map, memory, shared_address(rings));
  if (p.reads_ahead) wait_for_kernel_before();
  let_next_kernel_start();
  streamer.run();
#endif
}

}  // namespace baton::cuda
