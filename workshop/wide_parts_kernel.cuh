/// The kernel of experiment 15: broad_gemm.cu in parts that can be left out or done otherwise.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda.h>
#include <cuda_bf16.h>

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/wgmma_shared.cuh"
#include "kernels/cuda/gemm/partial_sums.cuh"
#include "kernels/cuda/gemm/stream_ring.cuh"
#include "kernels/cuda/gemm/tensor_map.h"

namespace workshop {
namespace {

using namespace baton::cuda;

constexpr int kMaxStages = 24;
constexpr int kBarrierBytes = 3 * kMaxStages * 8 + 16;
constexpr int box_bytes(int n_rows) { return n_rows * kBoxBytes; }

/// How a launch differs from the product's.
enum Flags : int {
  kNoX = 1,      ///< x is not copied
  kNoStore = 2,  ///< out is not written
  kPairs = 4,    ///< stages of the weight are requested two at a time
  kRotated = 8,  ///< tiles begin at different k
};
/// What the kernel's code does otherwise.
enum class Exchange : int { first_adds, halves, cluster };
struct Form {
  bool weight_is_m = false;
  int width = 0;  ///< rows of the weight in a tile
  int rows = 0;   ///< of x, padded: 64 or 128 where x is M, else wgmma's N
  bool multiplies = true;
  bool early = false;  ///< frees a stage when the next has not arrived
  Exchange exchange = Exchange::first_adds;
  int parts = 1;  ///< of k
};
/// A form as a number, because nvcc's stubs know no kernels with parameters of class types.
constexpr unsigned code_of(const Form& f) {
  return unsigned(f.weight_is_m) | unsigned(f.multiplies) << 1 | unsigned(f.early) << 2 | unsigned(f.exchange) << 3 |
         unsigned(f.parts) << 5 | unsigned(f.width) << 8 | unsigned(f.rows) << 16;
}
constexpr Form form_of(unsigned code) {
  return {(code & 1) != 0,   int(code >> 8 & 255), int(code >> 16),
          (code & 2) != 0,   (code & 4) != 0,      static_cast<Exchange>(code >> 3 & 3),
          int(code >> 5 & 7)};
}
constexpr int n_multipliers(const Form& f) { return (f.weight_is_m ? f.width / 64 : f.rows / 64) * 128; }
constexpr int n_groups(const Form& f) { return (f.weight_is_m ? f.rows : f.width) / 8; }
constexpr int boxes_of(const Form& f) { return f.width <= 96 ? 2 : 1; }
constexpr int exchange_bytes(const Form& f) {
  return f.exchange == Exchange::cluster ? (f.parts - 1) * n_groups(f) / f.parts * n_multipliers(f) * 16 : 0;
}

struct PartsParams {
  void* out = nullptr;  ///< [n_rows, n] bf16
  uint4* partials = nullptr;
  std::uint64_t* stamps = nullptr;  ///< [block, 6], or null
  int n_rows = 0, n = 0, n_tiles = 0, k_stages = 0, first_part = 0, x_rows = 0, n_stages = 0, fill_stages = 0;
  int flags = 0;
};

#ifdef BATON_SM90A

__device__ __forceinline__ std::uint64_t now() {
  std::uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}
__device__ __forceinline__ std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ std::uint32_t of_peer(std::uint32_t address, int rank) {
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
__device__ __forceinline__ void store_to_peer(std::uint32_t to, const float (&v)[4], std::uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ std::uint32_t transposed(std::uint32_t pair) {
  __syncwarp();
  std::uint32_t other;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(other) : "r"(pair));
  return other;
}

/// The block's stages, in order.
template <int kParts>
struct Walk {
  const PartsParams& p;
  int item, k, end;
  __device__ explicit Walk(const PartsParams& params) : p(params), item(static_cast<int>(blockIdx.x)) { enter(); }
  __device__ void enter() { k = begin(part()), end = begin(part() + 1); }
  __device__ int begin(int part_index) const {
    if constexpr (kParts == 1) return part_index * p.k_stages;
    return part_index == 0 ? 0 : p.first_part + (p.k_stages - p.first_part) * (part_index - 1) / std::max(kParts - 1, 1);
  }
  // Parts of a tile are neighbouring blocks, so that clusters hold them.
  __device__ int tile() const { return item / kParts; }
  __device__ int part() const { return item % kParts; }
  __device__ bool has() const { return item < p.n_tiles * kParts; }
  __device__ void next() {
    if (++k < end) return;
    item += static_cast<int>(gridDim.x);
    enter();
  }
  __device__ int column() const { return (p.flags & kRotated) ? (k + tile() * 5) % p.k_stages : k; }
};

template <Form f>
class Multiplier {
  static constexpr int kGroups = n_groups(f), kMultipliers = n_multipliers(f), kBoxes = boxes_of(f);

 public:
  __device__ Multiplier(const PartsParams& p, const Ring& ring, int stage_bytes, std::uint32_t exchange)
      : p_(p), ring_(ring), stage_bytes_(stage_bytes), exchange_(exchange), thread_(static_cast<int>(threadIdx.x)) {}

  __device__ void run() {
    Walk<f.parts> walk(p_);
#pragma unroll 1
    for (; walk.has(); walk.item += static_cast<int>(gridDim.x), walk.enter()) {
      const int part = walk.part(), tile = walk.tile();
      multiply(walk.end - walk.k);
      stamp(3);
      if constexpr (f.parts == 1) {
        store(tile * f.width, 0, kGroups);
      } else if constexpr (f.exchange == Exchange::first_adds) {
        static_assert(f.parts == 2);
        if (part > 0) {
          give<0, kGroups>(tile);
        } else {
          add<0, kGroups>(tile);
          store(tile * f.width, 0, kGroups);
        }
      } else if constexpr (f.exchange == Exchange::halves) {
        static_assert(f.parts == 2);
        constexpr int kHalf = kGroups / 2;
        if (part == 0) {
          give<kHalf, kGroups>(tile);
          add<0, kHalf>(tile);
          store(tile * f.width, 0, kHalf);
        } else {
          give<0, kHalf>(tile);
          add<kHalf, kGroups>(tile);
          store(tile * f.width, kHalf, kGroups);
        }
      } else {
        join_cluster(tile);
      }
    }
    stamp(4);
    if (p_.stamps != nullptr && thread_ == 0) {
      std::uint32_t multiprocessor;
      asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
      p_.stamps[blockIdx.x * 6 + 5] = multiprocessor;
    }
  }
  __device__ __forceinline__ void stamp(int i) {
    if (p_.stamps != nullptr && thread_ == 0) p_.stamps[blockIdx.x * 6 + i] = now();
  }

 private:
  __device__ __forceinline__ void multiply(int n_stages) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group)
#pragma unroll
      for (float& sum : sums_[group]) sum = 0;
    int before = -1;
#pragma unroll 1
    for (int stage = 0; stage < n_stages; ++stage) {
      barrier_wait(ring_.has_weight + 8 * place_.slot, place_.parity);
      if (!(p_.flags & kNoX)) barrier_wait(ring_.has_x + 8 * place_.slot, place_.parity);
      if (stage == 0) stamp(2);
      if constexpr (!f.multiplies) {
        release(place_.slot);
        place_.advance(p_.n_stages);
        continue;
      }
      const std::uint32_t weight =
          ring_.stages + place_.slot * stage_bytes_ + (f.weight_is_m ? thread_ / 128 * box_bytes(64) : 0);
      const std::uint32_t x = ring_.stages + place_.slot * stage_bytes_ + kBoxes * box_bytes(f.width) +
                              (f.weight_is_m ? 0 : thread_ / 128 * box_bytes(64));
      own_accumulators(sums_);
      wgmma_fence();
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        const std::uint64_t of_x = wgmma_descriptor(x + box * box_bytes(p_.x_rows), 16, 1024);
        const std::uint64_t of_weight = wgmma_descriptor(weight + box * box_bytes(f.width), 16, 1024);
#pragma unroll
        for (int step = 0; step < kBoxK / 16; ++step)
          wgmma_shared<__nv_bfloat16>(sums_, (f.weight_is_m ? of_weight : of_x) + step * 2,
                                      (f.weight_is_m ? of_x : of_weight) + step * 2);
      }
      wgmma_commit();
      const int slot = place_.slot;
      place_.advance(p_.n_stages);
      if (f.early && !barrier_has_ended(ring_.has_weight + 8 * place_.slot, place_.parity)) {
        wgmma_wait<0>();
        release(before);
        release(slot);
        before = -1;
      } else {
        wgmma_wait<1>();
        release(before);
        before = slot;
      }
    }
    wgmma_wait<0>();
    own_accumulators(sums_);
    release(before);
  }
  __device__ __forceinline__ void release(int slot) {
    if (slot >= 0 && thread_ % 32 == 0) barrier_arrive(ring_.empty + 8 * slot);
  }
  __device__ __forceinline__ uint4* partials_of(int tile) {
    return p_.partials + static_cast<std::int64_t>(tile) * kGroups * kMultipliers + thread_;
  }
  template <int kFirst, int kEnd>
  __device__ __forceinline__ void give(int tile) {
#pragma unroll
    for (int g = kFirst; g < kEnd; ++g) store_partial(partials_of(tile) + g * kMultipliers, as_partial(sums_[g]));
  }
  template <int kFirst, int kEnd>
  __device__ __forceinline__ void add(int tile) {
    constexpr int kAtOnce = std::min(kEnd - kFirst, 16);
#pragma unroll
    for (int first = kFirst; first < kEnd; first += kAtOnce) {
      uint4 given[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (first + i < kEnd) given[i] = load_partial(partials_of(tile) + (first + i) * kMultipliers);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= kEnd) continue;
        while (!is_written(given[i])) given[i] = load_partial(partials_of(tile) + (first + i) * kMultipliers);
        reset_partial(partials_of(tile) + (first + i) * kMultipliers);
        add_partial(sums_[first + i], given[i]);
      }
    }
  }
  /// Each block of the cluster adds and stores a share of the groups.
  __device__ __forceinline__ void join_cluster(int tile) {
    constexpr int kShare = kGroups / f.parts;
    const int me = static_cast<int>(cluster_rank());
    const std::uint32_t barrier = ring_.empty + 8 * kMaxStages;
    cluster_wait();
#pragma unroll
    for (int to = 0; to < f.parts; ++to) {
      if (to == me) continue;
      const std::uint32_t room = of_peer(exchange_ + (me < to ? me : me - 1) * (kShare * kMultipliers * 16) + thread_ * 16, to);
      const std::uint32_t its_barrier = of_peer(barrier, to);
#pragma unroll
      for (int i = 0; i < kShare; ++i) store_to_peer(room + i * kMultipliers * 16, sums_[to * kShare + i], its_barrier);
    }
    barrier_wait(barrier, 0);
#pragma unroll
    for (int share = 0; share < f.parts; ++share) {
      if (share != me) continue;
#pragma unroll
      for (int i = 0; i < kShare; ++i) {
        float total[4] = {};
#pragma unroll
        for (int from = 0; from < f.parts; ++from) {
          if (from == me) {
#pragma unroll
            for (int j = 0; j < 4; ++j) total[j] += sums_[share * kShare + i][j];
          } else {
            add_partial(total, load_shared(exchange_ + (from < me ? from : from - 1) * (kShare * kMultipliers * 16) +
                                           i * kMultipliers * 16 + thread_ * 16));
          }
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) sums_[share * kShare + i][j] = total[j];
      }
      store(tile * f.width, share * kShare, (share + 1) * kShare);
    }
  }
  __device__ __forceinline__ void store(int first, int begin, int end) {
    if (p_.flags & kNoStore) return;
    auto* const all = static_cast<std::uint16_t*>(p_.out);
    if constexpr (f.weight_is_m) {
      const int column = first + thread_ / 32 * 16 + thread_ % 4 * 2;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        if (group < begin || group >= end) continue;
        const int row = group * 8 + thread_ % 32 / 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const std::uint32_t pair = transposed(pack_pair<__nv_bfloat16>(sums_[group][2 * half], sums_[group][2 * half + 1]));
          if (row < p_.n_rows && column + half * 8 < p_.n)
            *reinterpret_cast<std::uint32_t*>(all + static_cast<std::int64_t>(row) * p_.n + column + half * 8) = pair;
        }
      }
    } else {
      const int lane = thread_ % 4;
      const bool is_odd = thread_ & 1, is_high = thread_ & 2;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = thread_ / 32 * 16 + thread_ % 32 / 4 + half * 8;
        auto* const out = all + static_cast<std::int64_t>(row) * p_.n + first;
#pragma unroll
        for (int group = 0; group < kGroups; group += 2) {
          if (group < begin || group >= end) continue;
          if (group + 4 <= kGroups && group + 4 <= end && (group - begin) % 4 == 0) {
            std::uint32_t v[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
              v[i] = group + i < kGroups ? pack_pair<__nv_bfloat16>(sums_[std::min(group + i, kGroups - 1)][2 * half],
                                                                    sums_[std::min(group + i, kGroups - 1)][2 * half + 1])
                                         : 0;
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
            const int column = (group + lane) * 8;
            if (row < p_.n_rows && first + column < p_.n) *reinterpret_cast<uint4*>(out + column) = {v[0], v[1], v[2], v[3]};
          } else if (!((group - begin) % 4 == 2 && group + 2 <= end && group - 2 + 4 <= kGroups)) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              if (group + i >= kGroups) continue;
              const int column = (group + i) * 8 + lane * 2;
              if (row < p_.n_rows && first + column < p_.n)
                *reinterpret_cast<std::uint32_t*>(out + column) = pack_pair<__nv_bfloat16>(
                    sums_[std::min(group + i, kGroups - 1)][2 * half], sums_[std::min(group + i, kGroups - 1)][2 * half + 1]);
            }
          }
        }
      }
    }
  }

  const PartsParams& p_;
  const Ring& ring_;
  int stage_bytes_;
  std::uint32_t exchange_;
  int thread_;
  RingPlace place_;
  float sums_[kGroups][4];
};

#endif  // BATON_SM90A

template <unsigned kCode>
__global__ void __launch_bounds__(n_multipliers(form_of(kCode)) + 64, 1)
    parts_kernel([[maybe_unused]] const __grid_constant__ PartsParams p,
                 [[maybe_unused]] const __grid_constant__ CUtensorMap x_map,
                 [[maybe_unused]] const __grid_constant__ CUtensorMap weight_map) {
#ifdef BATON_SM90A
  constexpr Form f = form_of(kCode);
  constexpr int kMultipliers = n_multipliers(f), kBoxes = boxes_of(f);
  constexpr bool kClusters = f.exchange == Exchange::cluster && f.parts > 1;
  extern __shared__ __align__(1024) std::byte memory[];
  const int stage_bytes = kBoxes * (box_bytes(f.width) + box_bytes(p.x_rows));
  const std::uint32_t stages = shared_address(memory);
  const std::uint32_t exchange = stages + p.n_stages * stage_bytes + box_bytes(f.rows - p.x_rows);
  const std::uint32_t barriers = exchange + exchange_bytes(f);
  const Ring ring{stages, barriers, barriers + 8 * kMaxStages, barriers + 16 * kMaxStages};
  const auto thread = static_cast<int>(threadIdx.x);
  if (p.stamps != nullptr && thread == 0) p.stamps[blockIdx.x * 6] = now();
  if (thread == 0) {
    if constexpr (kClusters) barrier_init(ring.empty + 8 * kMaxStages, 1);
    init_ring(ring, p.n_stages, kMultipliers / 32);
    if constexpr (kClusters) barrier_expect(ring.empty + 8 * kMaxStages, exchange_bytes(f));
  }
  __syncthreads();
  if constexpr (kClusters) cluster_arrive();
  if (thread < kMultipliers) {
    wait_for_kernel_before();
    Multiplier<f>(p, ring, stage_bytes, exchange).run();
    return;
  }
  if (thread == kMultipliers) {
    const std::uint64_t policy = read_once_policy();
    const int at_once = (p.flags & kPairs) ? 2 : 1;
    Walk<f.parts> walk(p);
    RingPlace place, ahead;
    int i = 0, n_free = 0;
#pragma unroll 1
    for (; walk.has(); walk.next(), ++i) {
      if (i < p.n_stages) {
        if (i >= p.fill_stages) barrier_wait(ring.has_weight + 8 * (i - p.fill_stages), 0);
        ahead.advance(p.n_stages);
      } else {
        if (n_free == 0)
          for (; n_free < at_once; ++n_free) {
            barrier_wait(ring.empty + 8 * ahead.slot, ahead.parity ^ 1);
            ahead.advance(p.n_stages);
          }
        --n_free;
      }
      const std::uint32_t barrier = ring.has_weight + 8 * place.slot;
      barrier_expect(barrier, kBoxes * box_bytes(f.width));
#pragma unroll
      for (int box = 0; box < kBoxes; ++box)
        copy_box(ring.stages + place.slot * stage_bytes + box * box_bytes(f.width), &weight_map,
                 (walk.column() * kBoxes + box) * kBoxK, walk.tile() * f.width, barrier, policy);
      place.advance(p.n_stages);
    }
  } else if (thread == kMultipliers + 32) {
    prefetch_map(&x_map);
    wait_for_kernel_before();
    let_next_kernel_start();
    if (p.stamps != nullptr) p.stamps[blockIdx.x * 6 + 1] = now();
    if (!(p.flags & kNoX)) {
      Walk<f.parts> walk(p);
      RingPlace place;
      int i = 0;
#pragma unroll 1
      for (; walk.has(); walk.next(), ++i) {
        if (i >= p.n_stages) barrier_wait(ring.empty + 8 * place.slot, place.parity ^ 1);
        const std::uint32_t x = ring.stages + place.slot * stage_bytes + kBoxes * box_bytes(f.width);
        const std::uint32_t barrier = ring.has_x + 8 * place.slot;
        barrier_expect(barrier, kBoxes * box_bytes(p.x_rows));
#pragma unroll
        for (int box = 0; box < kBoxes; ++box)
          copy_box(x + box * box_bytes(p.x_rows), &x_map, (walk.column() * kBoxes + box) * kBoxK, 0, barrier);
        place.advance(p.n_stages);
      }
    }
  }
  if constexpr (kClusters) {
    __syncwarp();
    cluster_wait();
  }
#endif
}

}  // namespace
}  // namespace workshop
