/// The kernel of the broad GEMM: one persistent block a multiprocessor. x is wgmma's M (a warpgroup for each 64 rows), and a tile's
/// 48 to 224 rows of the weight are its N, so that x comes from the L2 once for many bytes of the weight. A thread copies stages of
/// the weight to a ring in shared memory, another one x. broad_layout.h says which tiles a block has.
///
/// For more than 64 rows of x, tiles of 64 and 128 rows of the weight may be M themselves (a warpgroup for each 64), and x is N: then
/// x is not padded to 128 rows, and wgmma reads less shared memory.
///
/// A block starts as soon as its multiprocessor has room, which may be before the kernel before starts to compute, and fills
/// its ring with weights meanwhile.
///
/// Where k has two parts, the block of the second passes its sums through the L2 (partial_sums.cuh) to that of the first, which
/// adds them to its own and stores. All words of partial sums are kNotWritten again when the kernel ends. They are touched only
/// after wait_for_kernel_before, so the next matmul, whose blocks may start earlier, finds them reset. No block waits for one
/// that cannot start: items of cut tiles are at most as many as multiprocessors, and the next kernel starts only when all of
/// them run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "core/check.h"
#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/gemm/broad_layout.h"
#include "kernels/cuda/gemm/gated_columns.cuh"
#include "kernels/cuda/gemm/gated_map.h"
#include "kernels/cuda/gemm/partial_sums.cuh"
#include "kernels/cuda/gemm/ring_multiply.cuh"
#include "kernels/cuda/gemm/stream_ring.cuh"
#include "kernels/cuda/gemm/tensor_map.h"

namespace baton::cuda {

static_assert(kBroadBoxK == kBoxK);
inline constexpr int kMostBroadStages = 24;
inline constexpr int kBroadBarrierBytes = 3 * kMostBroadStages * 8;

constexpr int broad_box_bytes(int n_rows) { return n_rows * kBoxBytes; }
/// What a kernel is compiled for.
enum class BroadForm { plain, gated, weight_is_m };
struct BroadTile {
  int width = 0;  ///< rows of the weight
  int rows = 0;   ///< of x: 64 or 128 where x is wgmma's M, otherwise its N
  BroadForm form = BroadForm::plain;
  constexpr int n_multipliers() const { return (form == BroadForm::weight_is_m ? width : rows) / kBroadRowGroup * 128; }
  /// The multipliers, and a warp for each copying thread.
  constexpr int n_threads() const { return n_multipliers() + 2 * 32; }
};

struct BroadGemmParams {
  const void* bias;  ///< [n] of out's type, or null
  void* out;         ///< [n_rows, n]
  uint4* partials;   ///< [n_tiles, width / 8, multipliers]
  BroadSchedule schedule;
  int n_rows;
  int n;
  int x_rows;       ///< of a box of x
  int n_stages;     ///< of the ring
  int fill_stages;  ///< weight stages that a block requests at once while it fills its ring
  bool f32_out;
  FusedGate gate;  ///< of kernels with a gate: out is [n_rows, n / 2] of x's type, and there is no bias
};

#ifdef BATON_SM90A

/// Calls `body(tile, part)` for each of the block's items.
template <class Body>
__device__ __forceinline__ void for_each_item(const BroadGemmParams& p, Body&& body) {
#pragma unroll 1
  for (int item = static_cast<int>(blockIdx.x); item < p.schedule.n_items(); item += static_cast<int>(gridDim.x))
    body(item % p.schedule.n_tiles, item / p.schedule.n_tiles);
}
/// Calls `body(tile, k, slot, i)` for the block's i-th stage, stage k of its tile, as soon as its slot is empty.
template <class Body>
__device__ __forceinline__ void for_each_stage(const BroadGemmParams& p, const Ring& ring, Body&& body) {
  RingPlace place;
  int i = 0;
  for_each_item(p, [&](int tile, int part) {
    const int end = p.schedule.begin(part + 1);
#pragma unroll 1
    for (int k = p.schedule.begin(part); k < end; ++k) {
      if (i >= p.n_stages) barrier_wait(ring.empty + 8 * place.slot, place.parity ^ 1);
      body(tile, k, place.slot, i++);
      place.advance(p.n_stages);
    }
  });
}

template <int kWidth, BroadForm kForm>
__device__ void copy_broad_weights(const BroadGemmParams& p, const Ring& ring, const CUtensorMap* map, int stage_bytes) {
  constexpr int kBoxes = broad_boxes(kWidth);
  const std::uint64_t policy = read_once_policy();
  for_each_stage(p, ring, [&](int tile, int k, int slot, int i) {
    if (i >= p.fill_stages && i < p.n_stages) barrier_wait(ring.has_weight + 8 * (i - p.fill_stages), 0);
    const std::uint32_t barrier = ring.has_weight + 8 * slot;
    barrier_expect(barrier, kBoxes * broad_box_bytes(kWidth));
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      const std::uint32_t to = ring.stages + slot * stage_bytes + box * broad_box_bytes(kWidth);
      const int column = (k * kBoxes + box) * kBoxK;
      if constexpr (kForm == BroadForm::gated)
        copy_gated_box(to, map, column, tile * (kWidth / 2 / kGatedRunOfN), barrier, policy);
      else
        copy_box(to, map, column, tile * kWidth, barrier, policy);
    }
  });
}

template <int kWidth>
__device__ void copy_broad_x(const BroadGemmParams& p, const Ring& ring, const CUtensorMap* map, int stage_bytes) {
  constexpr int kBoxes = broad_boxes(kWidth);
  for_each_stage(p, ring, [&](int /*tile*/, int k, int slot, int /*i*/) {
    const std::uint32_t x = ring.stages + slot * stage_bytes + kBoxes * broad_box_bytes(kWidth);
    const std::uint32_t barrier = ring.has_x + 8 * slot;
    barrier_expect(barrier, kBoxes * broad_box_bytes(p.x_rows));
#pragma unroll
    for (int box = 0; box < kBoxes; ++box)
      copy_box(x + box * broad_box_bytes(p.x_rows), map, (k * kBoxes + box) * kBoxK, 0, barrier);
  });
}

/// In lane l of four, the l-th word of each of the four lanes.
__device__ __forceinline__ void transpose_in_four_lanes(std::uint32_t (&v)[4]) {
  const bool is_odd = (threadIdx.x & 1) != 0;
  const bool is_high = (threadIdx.x & 2) != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t other = __shfl_xor_sync(~0u, is_odd ? v[i] : v[i + 1], 1);
    (is_odd ? v[i] : v[i + 1]) = other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t other = __shfl_xor_sync(~0u, is_high ? v[i] : v[i + 2], 2);
    (is_high ? v[i] : v[i + 2]) = other;
  }
}

/// The multiplying warpgroups. T is the type of x and of the weight.
template <class T, int kWidth, int kRows, BroadForm kForm>
class BroadMultiplier {
  static constexpr bool kWeightIsM = kForm == BroadForm::weight_is_m;
  static constexpr int kGroups = (kWeightIsM ? kRows : kWidth) / 8;
  static constexpr int kMultipliers = BroadTile{kWidth, kRows, kForm}.n_multipliers();
  static constexpr int kBoxes = broad_boxes(kWidth);

 public:
  __device__ BroadMultiplier(const BroadGemmParams& p, const Ring& ring, int stage_bytes)
      : p_(p), ring_(ring), stage_bytes_(stage_bytes), thread_(static_cast<int>(threadIdx.x)) {}

  __device__ void run() {
    for_each_item(p_, [&](int tile, int part) {
      multiply(p_.schedule.begin(part + 1) - p_.schedule.begin(part));
      if (part > 0) return give_sums(tile);
      if (p_.schedule.n_parts > 1) add_other_sums(tile);
      if constexpr (kForm == BroadForm::gated)
        store_gated(tile * (kWidth / 2));
      else if (p_.f32_out)
        store_tile<float>(tile * kWidth);
      else
        store_tile<T>(tile * kWidth);
    });
  }

 private:
  /// The sums of the next stages of the ring.
  __device__ __forceinline__ void multiply(int n_stages) {
    const int of_weight = broad_box_bytes(kWidth);
    const int of_x = broad_box_bytes(p_.x_rows);
    multiply_stages<T, kBoxes>(ring_, place_, p_.n_stages, n_stages, sums_, kWeightIsM ? of_weight : of_x,
                               kWeightIsM ? of_x : of_weight, [&](int slot) {
                                 const std::uint32_t weight = ring_.stages + slot * stage_bytes_;
                                 const std::uint32_t x = weight + kBoxes * of_weight;
                                 const std::uint32_t of_warpgroup = thread_ / 128 * broad_box_bytes(kBroadRowGroup);
                                 if constexpr (kWeightIsM) return Operands{weight + of_warpgroup, x};
                                 return Operands{x + of_warpgroup, weight};
                               });
  }

  __device__ __forceinline__ uint4* partials_of(int tile) {
    return p_.partials + static_cast<std::int64_t>(tile) * kGroups * kMultipliers + thread_;
  }
  __device__ __forceinline__ void give_sums(int tile) {
    uint4* const to = partials_of(tile);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) store_partial(to + group * kMultipliers, as_partial(sums_[0][group]));
  }
  __device__ __forceinline__ void add_other_sums(int tile) {
    // As many at once as registers hold, because each time is a round trip.
    constexpr int kRegisters = kMultipliers == 128 ? 230 : 140;
    constexpr int kAtOnce = std::min(kGroups, kRegisters / 4 - kGroups);
    uint4* const from = partials_of(tile);
#pragma unroll
    for (int first = 0; first < kGroups; first += kAtOnce) {
      uint4 given[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (first + i < kGroups) given[i] = load_partial(from + (first + i) * kMultipliers);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= kGroups) continue;
        while (!is_written(given[i])) given[i] = load_partial(from + (first + i) * kMultipliers);
        reset_partial(from + (first + i) * kMultipliers);
        add_partial(sums_[0][first + i], given[i]);
      }
    }
  }

  template <class Out>
  __device__ __forceinline__ void store_tile(int first) {
    if constexpr (kWeightIsM)
      store_transposed<Out>(first);
    else
      store<Out>(first);
  }

  /// A pair of columns' sums in one of the thread's two rows, and the bias.
  template <class Out>
  __device__ __forceinline__ float2 sums_of(int group, int half, int column) {
    float2 sums = make_float2(sums_[0][group][2 * half], sums_[0][group][2 * half + 1]);
    if (p_.bias != nullptr && column < p_.n) {
      const auto* const bias = static_cast<const Out*>(p_.bias) + column;
      sums.x += to_f32(bias[0]);
      sums.y += to_f32(bias[1]);
    }
    return sums;
  }
  /// Writes the tile's columns of out, `first` and those after it. Of 16 bits, four lanes write 64 adjacent bytes of a row.
  template <class Out>
  __device__ __forceinline__ void store(int first) {
    constexpr bool kIsFloat = std::is_same_v<Out, float>;
    constexpr int kTransposed = kIsFloat ? 0 : kGroups / 4 * 4;
    const int lane = thread_ % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = thread_ / 32 * 16 + thread_ % 32 / 4 + half * 8;
      Out* const out = static_cast<Out*>(p_.out) + static_cast<std::int64_t>(row) * p_.n + first;
      if constexpr (!kIsFloat) {
#pragma unroll
        for (int group = 0; group < kTransposed; group += 4) {
          std::uint32_t v[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float2 sums = sums_of<Out>(group + i, half, first + (group + i) * 8 + lane * 2);
            v[i] = pack_pair<Out>(sums.x, sums.y);
          }
          transpose_in_four_lanes(v);
          const int column = (group + lane) * 8;
          if (row < p_.n_rows && first + column < p_.n) *reinterpret_cast<uint4*>(out + column) = {v[0], v[1], v[2], v[3]};
        }
      }
#pragma unroll
      for (int group = kTransposed; group < kGroups; ++group) {
        const int column = group * 8 + lane * 2;
        const float2 sums = sums_of<Out>(group, half, first + column);
        if (row >= p_.n_rows || first + column >= p_.n) continue;
        if constexpr (kIsFloat)
          *reinterpret_cast<float2*>(out + column) = sums;
        else
          *reinterpret_cast<std::uint32_t*>(out + column) = pack_pair<Out>(sums.x, sums.y);
      }
    }
  }

  /// The same of sums whose rows are out's columns. Of 16 bits, two lanes write 32 adjacent bytes of a
  /// row.
  template <class Out>
  __device__ __forceinline__ void store_transposed(int first) {
    const int lane = thread_ % 4;
    const int row = thread_ % 32 / 4;  // of a group, after the transposition
    Out* const out = static_cast<Out*>(p_.out);
    first += thread_ / 32 * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int column = first + half * 8 + row;
      const float bias = p_.bias != nullptr && column < p_.n ? to_f32(static_cast<const Out*>(p_.bias)[column]) : 0.0f;
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& sum = sums_[0][group][2 * half + i];
          if (p_.bias != nullptr) sum += bias;
          if constexpr (std::is_same_v<Out, float>) {
            const int of_x = group * 8 + lane * 2 + i;
            if (of_x < p_.n_rows && column < p_.n) out[static_cast<std::int64_t>(of_x) * p_.n + column] = sum;
          }
        }
    }
    if constexpr (!std::is_same_v<Out, float>) {
      static_assert(kGroups % 2 == 0);
#pragma unroll
      for (int group = 0; group < kGroups; group += 2) {
        std::uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* const sums = sums_[0][group + i / 2] + i % 2 * 2;
          v[i] = transposed_in_warp(pack_pair<Out>(sums[0], sums[1]));
        }
        transpose_in_four_lanes(v);
        const int of_x = (group + lane / 2) * 8 + row;
        const int column = first + lane % 2 * 8;
        if (of_x < p_.n_rows && column < p_.n)
          *reinterpret_cast<uint4*>(out + static_cast<std::int64_t>(of_x) * p_.n + column) = {v[0], v[1], v[2], v[3]};
      }
    }
  }

  /// Writes the tile's columns of out, `first` and those after it.
  __device__ __forceinline__ void store_gated(int first) {
    T* const out = static_cast<T*>(p_.out) + first;
    const GatedPlace place{thread_ / 32 * 16 + thread_ % 32 / 4, p_.n_rows, p_.n / 2 - first, p_.n / 2};
    store_gated_columns(p_.gate, sums_[0], out, place);
  }

  const BroadGemmParams& p_;
  const Ring& ring_;
  int stage_bytes_;
  int thread_;
  RingPlace place_;
  float sums_[1][kGroups][4];
};

#endif  // BATON_SM90A

/// With a gate `weight_map` is a gated_map.
template <class T, int kWidth, int kRows, BroadForm kForm>
__global__ void __launch_bounds__(BroadTile{kWidth, kRows, kForm}.n_threads(), 1)
    broad_gemm_kernel([[maybe_unused]] const __grid_constant__ BroadGemmParams p,
                      [[maybe_unused]] const __grid_constant__ CUtensorMap x_map,
                      [[maybe_unused]] const __grid_constant__ CUtensorMap weight_map) {
#ifdef BATON_SM90A
  constexpr int kMultipliers = BroadTile{kWidth, kRows, kForm}.n_multipliers();
  extern __shared__ __align__(1024) std::byte memory[];
  const int stage_bytes = broad_boxes(kWidth) * (broad_box_bytes(kWidth) + broad_box_bytes(p.x_rows));
  const std::uint32_t stages = shared_address(memory);
  // Warpgroups read 64 rows of x where a box has fewer: there is memory after the last stage.
  const std::uint32_t barriers = stages + p.n_stages * stage_bytes + broad_box_bytes(kRows - p.x_rows);
  const Ring ring{stages, barriers, barriers + 8 * kMostBroadStages, barriers + 16 * kMostBroadStages};
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) init_ring(ring, p.n_stages, kMultipliers / 32);
  __syncthreads();
  if (thread < kMultipliers) {
    wait_for_kernel_before();
    BroadMultiplier<T, kWidth, kRows, kForm>(p, ring, stage_bytes).run();
  } else if (thread == kMultipliers) {
    copy_broad_weights<kWidth, kForm>(p, ring, &weight_map, stage_bytes);
  } else if (thread == kMultipliers + 32) {
    prefetch_map(&x_map);
    wait_for_kernel_before();
    let_next_kernel_start();
    copy_broad_x<kWidth>(p, ring, &x_map, stage_bytes);
  }
#endif
}

using BroadKernel = void (*)(BroadGemmParams, CUtensorMap, CUtensorMap);

template <class T, int kRows, BroadForm kForm, const auto& kWidths, std::size_t... i>
BroadKernel broad_kernel_of_width(int width, std::index_sequence<i...>) {
  BroadKernel found = nullptr;
  ((width == kWidths[i] ? void(found = broad_gemm_kernel<T, kWidths[i], kRows, kForm>) : void()), ...);
  check(found != nullptr, "broad_gemm: a width that has no kernel");
  return found;
}
/// Kernels of one form.
template <class T, BroadForm kForm>
BroadKernel broad_kernel_of_type(const BroadTile& tile) {
  if constexpr (kForm == BroadForm::weight_is_m) {
    constexpr auto kWidths = std::make_index_sequence<std::size(kBroadWidthsAsM)>{};
    switch (tile.rows) {
      case 80: return broad_kernel_of_width<T, 80, kForm, kBroadWidthsAsM>(tile.width, kWidths);
      case 96: return broad_kernel_of_width<T, 96, kForm, kBroadWidthsAsM>(tile.width, kWidths);
      case 112: return broad_kernel_of_width<T, 112, kForm, kBroadWidthsAsM>(tile.width, kWidths);
      default: return broad_kernel_of_width<T, 128, kForm, kBroadWidthsAsM>(tile.width, kWidths);
    }
  } else {
    constexpr auto kWidths = std::make_index_sequence<std::size(kBroadWidths)>{};
    return tile.rows == kBroadRowGroup ? broad_kernel_of_width<T, 64, kForm, kBroadWidths>(tile.width, kWidths)
                                       : broad_kernel_of_width<T, 128, kForm, kBroadWidths>(tile.width, kWidths);
  }
}
template <BroadForm kForm>
BroadKernel broad_kernel_of(DType dtype, const BroadTile& tile) {
  return dtype == DType::bf16 ? broad_kernel_of_type<__nv_bfloat16, kForm>(tile) : broad_kernel_of_type<__half, kForm>(tile);
}

/// The kernels with a gate, which are compiled in a file of their own (broad_gated.cu).
BroadKernel gated_broad_kernel(DType dtype, const BroadTile& tile);

}  // namespace baton::cuda
