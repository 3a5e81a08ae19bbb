/// Persistent GEMM for 33 to 256 rows of x whose tiles are wide: x is wgmma's M (a warpgroup for each 64 rows) and `kWidth`
/// rows of the weight are its N, so that x is read from the L2 once for many bytes of the weight. Blocks take tiles in turn.
/// Where a weight has fewer tiles than the device multiprocessors, k is divided into parts, whose partial sums
/// (partial_sums.cuh) are added in the order of k: by the block of the first part, from registers, or by all of a tile's blocks,
/// each for a share of the rows of x, from shared memory (`shares`). `kPair`: the two blocks of a cluster have neighbouring
/// tiles; each copies half of x, and multicast delivers it to both.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/gemm/partial_sums.cuh"
#include "kernels/cuda/gemm/stream_ring.cuh"
#include "kernels/cuda/gemm/tensor_map.h"
#include "wgmma_columns.cuh"

namespace workshop {
namespace {

using namespace baton::cuda;

constexpr int kTileRows = 64;  ///< wgmma's M: rows of x that a warpgroup multiplies
constexpr int kMaxStages = 24;
constexpr int kBarrierBytes = 3 * kMaxStages * 8;

constexpr int box_bytes(int n_rows) { return n_rows * kBoxBytes; }

struct WideParams {
  void* out = nullptr;  ///< [n_rows, n] bf16
  uint4* partials =
      nullptr;  ///< [(n_parts - 1) * n_tiles, width / 8, multipliers]; of shares [n_parts, n_tiles, n_rows, width / 4]
  int n_rows = 0;
  int n = 0;
  int n_tiles = 0;     ///< even if blocks are in pairs
  int k_stages = 0;    ///< of a tile
  int n_parts = 1;     ///< of k
  int first_part = 0;  ///< stages of the first part
  int x_rows = 0;      ///< of x in a stage: a multiple of 8, of 16 in pairs
  int n_stages = 0;    ///< of the ring
  int fill_stages = 0;
  bool shares = false;  ///< each block of a tile adds the sums of some rows
  /// The first stage of a part.
  __host__ __device__ int begin(int part) const {
    return part == 0 ? 0 : n_parts == 1 ? k_stages : first_part + (k_stages - first_part) * (part - 1) / (n_parts - 1);
  }
};

#ifdef BATON_SM90A

/// Calls `body(tile, part)` for each of the block's items.
template <class Body>
__device__ __forceinline__ void for_each_item(const WideParams& p, Body&& body) {
#pragma unroll 1
  for (int item = static_cast<int>(blockIdx.x); item < p.n_tiles * p.n_parts; item += static_cast<int>(gridDim.x))
    body(item % p.n_tiles, item / p.n_tiles);
}
/// Calls `body(tile, k, slot, i)` for each stage of the block, as soon as its slot is empty.
template <class Body>
__device__ __forceinline__ void for_each_stage(const WideParams& p, const Ring& ring, Body&& body) {
  RingPlace place;
  int i = 0;
  for_each_item(p, [&](int tile, int part) {
    const int end = p.begin(part + 1);
#pragma unroll 1
    for (int k = p.begin(part); k < end; ++k) {
      if (i >= p.n_stages) barrier_wait(ring.empty + 8 * place.slot, place.parity ^ 1);
      body(tile, k, place.slot, i++);
      place.advance(p.n_stages);
    }
  });
}

__device__ __forceinline__ std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// Arrives at the other block's barrier. The plain form: the stage was only read.
__device__ __forceinline__ void arrive_at_peer(std::uint32_t barrier) {
  asm volatile(
      "{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %0, %1;\n\t"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}" ::"r"(barrier),
      "r"(cluster_rank() ^ 1)
      : "memory");
}
/// Copies a box to both blocks of a pair.
__device__ __forceinline__ void copy_box_to_pair(std::uint32_t to, const CUtensorMap* map, int column, int row,
                                                 std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], "
      "[%4], %5;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(static_cast<std::uint16_t>(3))
      : "memory");
}

/// In lane l of four, the l-th word of each of the four lanes.
__device__ __forceinline__ void transpose_in_four_lanes(std::uint32_t (&v)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t other = __shfl_xor_sync(~0u, odd ? v[i] : v[i + 1], 1);
    (odd ? v[i] : v[i + 1]) = other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t other = __shfl_xor_sync(~0u, high ? v[i] : v[i + 2], 2);
    (high ? v[i] : v[i + 2]) = other;
  }
}

template <class T, int kWidth, int kRowGroups, int kBoxes, bool kPair>
class WideMultiplier {
  static constexpr int kGroups = kWidth / 8;
  static constexpr int kMultipliers = kRowGroups * 128;

 public:
  __device__ WideMultiplier(const WideParams& p, const Ring& ring, int stage_bytes)
      : p_(p), ring_(ring), stage_bytes_(stage_bytes), thread_(static_cast<int>(threadIdx.x)) {}

  __device__ void run() {
    for_each_item(p_, [&](int tile, int part) {
      multiply(p_.begin(part + 1) - p_.begin(part));
      if (p_.shares) return share(tile, part);
      if (part > 0) return give_sums(tile, part);
#pragma unroll 1
      for (int other = 1; other < p_.n_parts; ++other) add_sums(tile, other);
      store(tile * kWidth);
    });
  }

 private:
  __device__ __forceinline__ void multiply(int n_stages) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (float& sum : sums_[group]) sum = 0;
    int before = -1;  // the slot whose matmuls may still run
#pragma unroll 1
    for (int stage = 0; stage < n_stages; ++stage) {
      barrier_wait(ring_.has_weight + 8 * place_.slot, place_.parity);
      barrier_wait(ring_.has_x + 8 * place_.slot, place_.parity);
      const std::uint32_t weight = ring_.stages + place_.slot * stage_bytes_;
      const std::uint32_t x = weight + kBoxes * box_bytes(kWidth) + thread_ / 128 * box_bytes(kTileRows);
      own_accumulators(sums_);
      wgmma_fence();
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        const std::uint64_t a = wgmma_descriptor(x + box * box_bytes(p_.x_rows), 16, 1024);
        const std::uint64_t b = wgmma_descriptor(weight + box * box_bytes(kWidth), 16, 1024);
#pragma unroll
        for (int step = 0; step < kBoxK / 16; ++step) wgmma_columns<T>(sums_, a + step * 2, b + step * 2);
      }
      wgmma_commit();
      wgmma_wait<1>();
      release(before);
      before = place_.slot;
      place_.advance(p_.n_stages);
    }
    wgmma_wait<0>();
    own_accumulators(sums_);
    release(before);
  }
  __device__ __forceinline__ void release(int slot) {
    if (slot < 0 || thread_ % 32 != 0) return;
    barrier_arrive(ring_.empty + 8 * slot);
    if constexpr (kPair) arrive_at_peer(ring_.empty + 8 * slot);
  }

  __device__ __forceinline__ uint4* partials_of(int tile, int part) {
    return p_.partials + static_cast<std::int64_t>((part - 1) * p_.n_tiles + tile) * kGroups * kMultipliers + thread_;
  }
  __device__ __forceinline__ void give_sums(int tile, int part) {
    uint4* const to = partials_of(tile, part);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) store_partial(to + group * kMultipliers, as_partial(sums_[group]));
  }
  __device__ __forceinline__ void add_sums(int tile, int part) {
    constexpr int kAtOnce =
        kGroups <= 16 ? kGroups : (kGroups + 1) / 2;  // as many as registers hold: each time is a round trip
    uint4* const from = partials_of(tile, part);
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
        add_partial(sums_[first + i], given[i]);
      }
    }
  }

  /// A row of sums in shared memory, so that four rows of pairs lie in different banks.
  static constexpr int kStride = kWidth + (40 - kWidth % 32) % 32;
  static constexpr int kChunks = kWidth / 8;

  /// Sums go through shared memory (the ring, which is empty), so that the code which exchanges them is a short loop: code that
  /// runs once waits for its instructions.
  __device__ __forceinline__ void share(int tile, int part) {
    named_barrier(1, kMultipliers);
    const std::uint32_t at = ring_.stages + ((thread_ / 32 * 16 + thread_ % 32 / 4) * kStride + thread_ % 4 * 2) * 4;
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at + (half * 8 * kStride + group * 8) * 4),
                     "f"(sums_[group][2 * half]), "f"(sums_[group][2 * half + 1])
                     : "memory");
    named_barrier(1, kMultipliers);
    const int own_begin = p_.n_rows * part / p_.n_parts, own_end = p_.n_rows * (part + 1) / p_.n_parts;
    const std::int64_t part_stride = std::int64_t{p_.n_tiles} * p_.n_rows * kChunks * 2;
    uint4* const sums = p_.partials + std::int64_t{tile} * p_.n_rows * kChunks * 2;
    const int n_own = (own_end - own_begin) * kChunks;
#pragma unroll 1
    for (int i = thread_; i < p_.n_rows * kChunks - n_own; i += kMultipliers) {
      const int chunk = i < own_begin * kChunks ? i : i + n_own;
      uint4* const to = sums + part * part_stride + chunk * 2;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const uint4 v = sums_at(chunk, j);
        store_partial(to + j, {as_partial(__uint_as_float(v.x)), as_partial(__uint_as_float(v.y)),
                               as_partial(__uint_as_float(v.z)), as_partial(__uint_as_float(v.w))});
      }
    }
    constexpr int kMostParts = 4;
#pragma unroll 1
    for (int i = thread_; i < n_own; i += kMultipliers) {
      const int chunk = own_begin * kChunks + i;
      uint4 given[kMostParts][2];
#pragma unroll
      for (int other = 0; other < kMostParts; ++other)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          if (other == part)
            given[other][j] = sums_at(chunk, j);
          else if (other < p_.n_parts)
            given[other][j] = load_partial(sums + other * part_stride + chunk * 2 + j);
        }
      float total[2][4] = {};
#pragma unroll
      for (int other = 0; other < kMostParts; ++other)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          if (other >= p_.n_parts) continue;
          if (other != part) {
            uint4* const from = sums + other * part_stride + chunk * 2 + j;
            while (!is_written(given[other][j])) given[other][j] = load_partial(from);
            reset_partial(from);
          }
          add_partial(total[j], given[other][j]);
        }
      const int row = chunk / kChunks, column = tile * kWidth + chunk % kChunks * 8;
      if (column < p_.n)
        *reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(p_.out) + static_cast<std::int64_t>(row) * p_.n + column) = {
            pack_pair<T>(total[0][0], total[0][1]), pack_pair<T>(total[0][2], total[0][3]),
            pack_pair<T>(total[1][0], total[1][1]), pack_pair<T>(total[1][2], total[1][3])};
    }
  }
  __device__ __forceinline__ uint4 sums_at(int chunk, int j) {
    return load_shared(ring_.stages + (chunk / kChunks * kStride + chunk % kChunks * 8 + j * 4) * 4);
  }

  /// Writes the columns of out after `first`: four lanes 64 adjacent bytes of a row.
  __device__ __forceinline__ void store(int first) {
    const int lane = thread_ % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = thread_ / 32 * 16 + thread_ % 32 / 4 + half * 8;
      auto* const out = static_cast<std::uint16_t*>(p_.out) + static_cast<std::int64_t>(row) * p_.n + first;
#pragma unroll
      for (int group = 0; group + 4 <= kGroups; group += 4) {
        std::uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = pack_pair<T>(sums_[group + i][2 * half], sums_[group + i][2 * half + 1]);
        transpose_in_four_lanes(v);
        const int column = (group + lane) * 8;
        if (row < p_.n_rows && first + column < p_.n) *reinterpret_cast<uint4*>(out + column) = {v[0], v[1], v[2], v[3]};
      }
#pragma unroll
      for (int group = kGroups / 4 * 4; group < kGroups; ++group) {
        const int column = group * 8 + lane * 2;
        if (row < p_.n_rows && first + column < p_.n)
          *reinterpret_cast<std::uint32_t*>(out + column) = pack_pair<T>(sums_[group][2 * half], sums_[group][2 * half + 1]);
      }
    }
  }

  const WideParams& p_;
  const Ring& ring_;
  int stage_bytes_;
  int thread_;
  RingPlace place_;
  float sums_[kGroups][4];
};

#endif  // BATON_SM90A

template <class T, int kWidth, int kRowGroups, int kBoxes, bool kPair>
__global__ void __launch_bounds__(kRowGroups * 128 + 64, 1)
    wide_rows_kernel([[maybe_unused]] const __grid_constant__ WideParams p,
                     [[maybe_unused]] const __grid_constant__ CUtensorMap x_map,
                     [[maybe_unused]] const __grid_constant__ CUtensorMap weight_map) {
#ifdef BATON_SM90A
  constexpr int kMultipliers = kRowGroups * 128;
  extern __shared__ __align__(1024) std::byte memory[];
  const int weight_bytes = kBoxes * box_bytes(kWidth);
  const int x_bytes = kBoxes * box_bytes(p.x_rows);
  const int stage_bytes = weight_bytes + x_bytes;
  const std::uint32_t stages = shared_address(memory);
  // Warpgroups read whole tiles of x where a box has fewer rows; what they find gives rows that are not stored.
  const std::uint32_t barriers = stages + p.n_stages * stage_bytes + box_bytes(kRowGroups * kTileRows - p.x_rows);
  const Ring ring{stages, barriers, barriers + 8 * kMaxStages, barriers + 16 * kMaxStages};
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) init_ring(ring, p.n_stages, kMultipliers / 32 * (kPair ? 2 : 1));
  __syncthreads();
  if constexpr (kPair) cluster_barrier();
  if (thread < kMultipliers) {
    wait_for_kernel_before();
    WideMultiplier<T, kWidth, kRowGroups, kBoxes, kPair>(p, ring, stage_bytes).run();
  } else if (thread == kMultipliers) {
    const std::uint64_t policy = read_once_policy();
    for_each_stage(p, ring, [&](int tile, int k, int slot, int i) {
      if (i >= p.fill_stages && i < p.n_stages) barrier_wait(ring.has_weight + 8 * (i - p.fill_stages), 0);
      const std::uint32_t barrier = ring.has_weight + 8 * slot;
      barrier_expect(barrier, weight_bytes);
#pragma unroll
      for (int box = 0; box < kBoxes; ++box)
        copy_box(ring.stages + slot * stage_bytes + box * box_bytes(kWidth), &weight_map, (k * kBoxes + box) * kBoxK,
                 tile * kWidth, barrier, policy);
    });
  } else if (thread == kMultipliers + 32) {
    prefetch_map(&x_map);
    wait_for_kernel_before();
    let_next_kernel_start();
    const int half = p.x_rows / 2 * static_cast<int>(kPair ? cluster_rank() : 0);
    for_each_stage(p, ring, [&](int /*tile*/, int k, int slot, int /*i*/) {
      const std::uint32_t barrier = ring.has_x + 8 * slot;
      barrier_expect(barrier, x_bytes);
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        const std::uint32_t to = ring.stages + slot * stage_bytes + weight_bytes + box * box_bytes(p.x_rows);
        if constexpr (kPair)
          copy_box_to_pair(to + box_bytes(half), &x_map, (k * kBoxes + box) * kBoxK, half, barrier);
        else
          copy_box(to, &x_map, (k * kBoxes + box) * kBoxK, 0, barrier);
      }
    });
  }
  if constexpr (kPair) {
    __syncwarp();
    cluster_barrier();
  }
#endif
}

}  // namespace
}  // namespace workshop
