/// The streaming GEMM in many forms: y [m, n] = x [m, k] W [n, k]^T, bf16 in and out, f32 sums, m <= kN.
///
/// One warp copies packed weights (streaming_layout.h) by bulk copies and x by tensor copies into a ring of stages. It
/// copies the first weights before it waits for the kernel before. kT x kC warpgroups multiply: warpgroup w has row
/// tile w % kT of a stage and every kC-th block of 64 of the stage's k, from block w / kT on. Weights are wgmma's A;
/// rows of x are its N.
///
/// With kShare = 2 the two blocks of a cluster multiply neighbouring row tiles by the same x. Each copies half of x's
/// rows to both (multicast), so that x is read from the L2 once for 128 kT weight rows.
///
/// Order of sums: kChains accumulators take the steps of 16 of a piece of k in turn and are added ((0 + 1) + (2 + 3)).
/// Then the sums of the kC warpgroups are added in order, then the pieces of a tile in the order of k. Nothing depends
/// on m or kN, except through the choice of the form.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_bf16.h>

#include "streaming_instructions.cuh"
#include "streaming_layout.h"

namespace workshop {

enum class End { plain, residual, silu };

enum Flag : int {
  kEvictFirst = 1,      ///< weights with L2::evict_first
  kLateDependents = 2,  ///< let the next kernel start when the last copy is issued, not at once
  kDirectStores = 4,    ///< 2-byte stores from the fragments, without movmatrix
  kWaitFirst = 8,       ///< weights too only behind the wait for the kernel before
  kRowMajor = 16,       ///< the weight is not packed but [n, k], read by tensor copies of 64 x 64
};

struct Params {
  const unsigned char* weight = nullptr;  ///< packed
  __nv_bfloat16* out = nullptr;           ///< [m, out_stride]
  float* residual = nullptr;              ///< [m, out_stride], End::residual: adds the matmul's result rounded to bf16
  uint4* partials = nullptr;              ///< [blocks, kT, kN / 8, 128], all ones; left so
  Schedule schedule;
  int k_tiles = 0;  ///< k / 64
  int m = 0;
  int out_stride = 0;
  int n_stages = 0;  ///< of the ring
  int flags = 0;
};

constexpr int kMaxStages = 16;
constexpr int kBarrierBytes = 8 * (2 * kMaxStages + 2);
constexpr std::uint32_t kNotWritten = 0xffffffffu;

template <int kN_, int kT_, int kC_, int kU_, int kChains_, bool kCluster_, int kShare_, End kEnd_>
struct Form {
  static constexpr int kN = kN_;            ///< rows of x, padded
  static constexpr int kT = kT_;            ///< row tiles of a stage
  static constexpr int kC = kC_;            ///< warpgroups that share a row tile's k
  static constexpr int kU = kU_;            ///< blocks of 64 k in a stage
  static constexpr int kChains = kChains_;  ///< accumulators of a warpgroup
  static constexpr bool kCluster = kCluster_;
  static constexpr int kShare = kShare_;  ///< blocks that share x: 1 or 2
  static constexpr End kEnd = kEnd_;
  static_assert(kShare == 1 || (kShare == 2 && !kCluster && kN >= 64));
  static constexpr int kWarpgroups = kT * kC;
  // The compiler gives all threads of a block equally many registers. Where the multiplying warpgroups need more, the
  // copying warp gets a warpgroup of its own, which gives registers up.
  static constexpr int kMovesFrom = 65536 / ((kWarpgroups + 1) * 128) / 8 * 8;
  static constexpr bool kMovesRegisters = kChains * kN / 2 + 56 > kMovesFrom;
  static constexpr int kProducerRegisters = 40;
  // All warpgroups together hold what the launch gave them (kMovesFrom each), not the whole register file. A warpgroup
  // that asks for more than is left waits for ever.
  static constexpr int kShareOfRegisters = ((kWarpgroups + 1) * kMovesFrom - kProducerRegisters) / kWarpgroups / 8 * 8;
  static constexpr int kConsumerRegisters = kShareOfRegisters < 240 ? kShareOfRegisters : 240;
  static constexpr int kThreads = kWarpgroups * 128 + (kMovesRegisters ? 128 : 32);
  static constexpr int kWeightBytes = kT * kU * kTileBytes;
  static constexpr int kXBytes = kN * 128;  ///< of one block of 64 k
  static constexpr int kStageBytes = kWeightBytes + kU * kXBytes;
  static constexpr int kSumBytes = kT * kTileRows * kN * 4;  ///< sums of one block's stage rows
  static constexpr int kWayBytes = (kC - 1) * kSumBytes;
  static_assert(kU % kC == 0);
  static_assert(kStageBytes % 1024 == 0);
};

// ---- Waits; each ends by a trap after about a second ---------------------------------------------------------------

constexpr long long kSpinCycles = 2'000'000'000;

template <bool kOfCluster = false>
__device__ __forceinline__ void wait_for(std::uint32_t barrier, std::uint32_t parity) {
  if (has_ended<kOfCluster>(barrier, parity)) return;
  const long long start = clock64();
  while (!has_ended<kOfCluster>(barrier, parity))
    if (clock64() - start > kSpinCycles) __trap();
}
/// Shared memory: ring, sums of the other warpgroups (kC), sums of the other blocks (clusters), barriers.
template <class F>
struct Shared {
  std::uint32_t ring, ways, merge, full, empty, merge_full, merge_free;
  __device__ __forceinline__ Shared(const void* memory, const Params& p) {
    ring = address_of(memory);
    ways = ring + p.n_stages * F::kStageBytes;
    merge = ways + F::kWayBytes;
    full = merge + (F::kCluster ? (p.schedule.cluster - 1) * F::kSumBytes : 0);
    empty = full + 8 * kMaxStages;
    merge_full = empty + 8 * kMaxStages;
    merge_free = merge_full + 8;
  }
};

/// The copying lane.
template <class F>
class Producer {
 public:
  __device__ Producer(const Params& p, const CUtensorMap* map, const CUtensorMap* weight_map, const Shared<F>& shared)
      : p_(p), map_(map), weight_map_(weight_map), shared_(shared), evict_first_((p.flags & kEvictFirst) != 0) {
    policy_ = evict_first_policy();
  }
  __device__ void init_barriers() {
    for (int i = 0; i < p_.n_stages; ++i) {
      init_barrier(shared_.full + 8 * i, 1);
      init_barrier(shared_.empty + 8 * i, 4 * F::kWarpgroups * F::kShare);
    }
    if constexpr (F::kCluster) {
      init_barrier(shared_.merge_full, 1);
      init_barrier(shared_.merge_free, 1);
    }
    fence_barrier_init();
    if constexpr (F::kCluster) expect(shared_.merge_full, (p_.schedule.cluster - 1) * F::kSumBytes);
  }
  /// Issues the weights of the first stages, all that the ring holds.
  __device__ void begin() {
    Cursor cursor(p_.schedule, static_cast<int>(blockIdx.x) / F::kShare);
    for (n_ahead_ = 0; n_ahead_ < p_.n_stages && cursor.valid(); ++n_ahead_, cursor.advance()) weights(cursor, n_ahead_);
  }
  /// The rest.
  __device__ void run() {
    Cursor cursor(p_.schedule, static_cast<int>(blockIdx.x) / F::kShare);
    for (int i = 0; i < n_ahead_; ++i, cursor.advance()) x(cursor, i);
    int slot = 0;
    std::uint32_t parity = 0;
#pragma unroll 1
    for (; cursor.valid(); cursor.advance()) {
      if (n_ahead_ < p_.n_stages) __trap();
      wait_for<(F::kShare > 1)>(shared_.empty + 8 * slot, parity);
      weights(cursor, slot);
      x(cursor, slot);
      if (++slot == p_.n_stages) slot = 0, parity ^= 1;
    }
  }

 private:
  __device__ __forceinline__ void weights(const Cursor& cursor, int slot) {
    const std::uint32_t barrier = shared_.full + 8 * slot;
    expect(barrier, F::kStageBytes);
#pragma unroll
    for (int t = 0; t < F::kT; ++t) {
      const int row_tile = (cursor.tile() * F::kShare + rank_) * F::kT + t;
      if ((p_.flags & kRowMajor) != 0) {
#pragma unroll
        for (int u = 0; u < F::kU; ++u)
          copy_box(shared_.ring + slot * F::kStageBytes + (t * F::kU + u) * kTileBytes, weight_map_,
                   (cursor.k() * F::kU + u) * kTileK, row_tile * kTileRows, barrier, evict_first_, policy_);
        continue;
      }
      const std::int64_t block = static_cast<std::int64_t>(row_tile) * p_.k_tiles + cursor.k() * F::kU;
      copy_weights(shared_.ring + slot * F::kStageBytes + t * F::kU * kTileBytes, p_.weight + block * kTileBytes,
                   F::kU * kTileBytes, barrier, evict_first_, policy_);
    }
  }
  __device__ __forceinline__ void x(const Cursor& cursor, int slot) {
#pragma unroll
    for (int u = 0; u < F::kU; ++u)
      copy_x<F::kShare>(
          shared_.ring + slot * F::kStageBytes + F::kWeightBytes + u * F::kXBytes + rank_ * (F::kXBytes / F::kShare), map_,
          (cursor.k() * F::kU + u) * kTileK, rank_ * (F::kN / F::kShare), shared_.full + 8 * slot);
  }

  const Params& p_;
  const CUtensorMap *map_, *weight_map_;
  const Shared<F>& shared_;
  std::uint64_t policy_ = 0;
  int rank_ = static_cast<int>(blockIdx.x) % F::kShare;
  bool evict_first_;
  int n_ahead_ = 0;
};

__device__ __forceinline__ std::uint64_t descriptor(std::uint32_t address) {
  // Start, leading offset (unused by swizzled K-major tiles), 1024 bytes between groups of 8 rows, 128-byte swizzle.
  return (std::uint64_t{1} << 62) | (std::uint64_t{1024 >> 4} << 32) | (std::uint64_t{1} << 16) | ((address & 0x3ffffu) >> 4);
}

__device__ __forceinline__ float low_of(std::uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_of(std::uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ __forceinline__ float silu(float gate) { return gate / (1.0f + __expf(-gate)); }

__device__ __forceinline__ bool is_written(uint4 v) {
  return v.x != kNotWritten && v.y != kNotWritten && v.z != kNotWritten && v.w != kNotWritten;
}
/// Never kNotWritten: that NaN becomes another.
__device__ __forceinline__ std::uint32_t writable(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  return bits == kNotWritten ? 0x7fffffffu : bits;
}
__device__ __forceinline__ void add(float (&c)[4], uint4 v) {
  c[0] += __uint_as_float(v.x), c[1] += __uint_as_float(v.y), c[2] += __uint_as_float(v.z), c[3] += __uint_as_float(v.w);
}
/// A multiplying warpgroup.
template <class F>
class Consumer {
  static constexpr int kJ = F::kN / 8;

 public:
  __device__ Consumer(const Params& p, const Shared<F>& shared)
      : p_(p),
        shared_(shared),
        thread_(static_cast<int>(threadIdx.x) % 128),
        tile_(static_cast<int>(threadIdx.x) / 128 % F::kT),
        way_(static_cast<int>(threadIdx.x) / 128 / F::kT) {}

  __device__ void run() {
    Walk walk(p_.schedule, static_cast<int>(blockIdx.x) / F::kShare);
    Segment segment;
    while (walk.next(segment)) {
      multiply(segment);
      end(segment);
    }
  }

 private:
  /// The segment's sums, in sums_[0].
  __device__ __forceinline__ void multiply(const Segment& segment) {
#pragma unroll
    for (int chain = 0; chain < F::kChains; ++chain)
#pragma unroll
      for (int j = 0; j < kJ; ++j) sums_[chain][j][0] = sums_[chain][j][1] = sums_[chain][j][2] = sums_[chain][j][3] = 0;
    int before = -1;  // the slot whose matmuls may still run
#pragma unroll 1
    for (int k = segment.begin; k < segment.end; ++k) {
      wait_for(shared_.full + 8 * slot_, parity_);
      const std::uint32_t stage = shared_.ring + slot_ * F::kStageBytes;
#pragma unroll
      for (int chain = 0; chain < F::kChains; ++chain) own(sums_[chain]);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < F::kU / F::kC; ++i) {
        const int u = i * F::kC + way_;
        const std::uint64_t a = descriptor(stage + (tile_ * F::kU + u) * kTileBytes);
        const std::uint64_t b = descriptor(stage + F::kWeightBytes + u * F::kXBytes);
#pragma unroll
        for (int step = 0; step < 4; ++step)
          Wgmma<F::kN>::multiply(sums_[(i * 4 + step) % F::kChains], a + step * 2, b + step * 2);
      }
      wgmma_commit();
      wgmma_wait<1>();
      if (before >= 0) release(before);
      before = slot_;
      if (++slot_ == p_.n_stages) slot_ = 0, parity_ ^= 1;
    }
    wgmma_wait<0>();
#pragma unroll
    for (int chain = 0; chain < F::kChains; ++chain) own(sums_[chain]);
    release(before);
#pragma unroll
    for (int distance = 1; distance < F::kChains; distance *= 2)
#pragma unroll
      for (int chain = 0; chain < F::kChains; chain += 2 * distance)
#pragma unroll
        for (int j = 0; j < kJ; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) sums_[chain][j][i] += sums_[chain + distance][j][i];
  }

  /// This warp has read the stage.
  __device__ __forceinline__ void release(int slot) {
    if (thread_ % 32 != 0) return;
    if constexpr (F::kShare > 1) {
#pragma unroll
      for (int rank = 0; rank < F::kShare; ++rank) arrive_remote(in_block(shared_.empty + 8 * slot, rank));
    } else {
      arrive(shared_.empty + 8 * slot);
    }
  }

  __device__ __forceinline__ void end(const Segment& segment) {
    if (!join_ways()) return;
    if constexpr (F::kCluster) {
      if (!join_cluster()) return;
    } else {
      if (!join_blocks(segment)) return;
    }
    store(segment.tile);
  }

  /// Adds the sums of the other warpgroups of this row tile; false for those.
  __device__ __forceinline__ bool join_ways() {
    if constexpr (F::kC == 1) {
      return true;
    } else {
      const int full = 1 + tile_, free = 1 + F::kT + tile_;
      const auto at = [&](int way, int j) {
        return shared_.ways + ((((way - 1) * F::kT + tile_) * kJ + j) * 128 + thread_) * 16;
      };
      if (way_ > 0) {
        if (has_joined_) named_sync(free, F::kC * 128);
        has_joined_ = true;
#pragma unroll
        for (int j = 0; j < kJ; ++j) store_shared(at(way_, j), sums_[0][j]);
        named_arrive(full, F::kC * 128);
        return false;
      }
      if (has_joined_) named_arrive(free, F::kC * 128);
      has_joined_ = true;
      named_sync(full, F::kC * 128);
#pragma unroll
      for (int way = 1; way < F::kC; ++way)
#pragma unroll
        for (int j = 0; j < kJ; ++j) add(sums_[0][j], load_shared(at(way, j)));
      return true;
    }
  }

  /// Pieces of a tile by other blocks. The block of the tile's first piece adds the others' in the order of k and
  /// returns true. The data are their own flag: a word that is not kNotWritten has arrived.
  __device__ __forceinline__ bool join_blocks(const Segment& segment) {
    const Schedule& s = p_.schedule;
    const int block = static_cast<int>(blockIdx.x) / F::kShare, rank = static_cast<int>(blockIdx.x) % F::kShare;
    const auto slot_of = [&](int of_block) {
      return p_.partials + (((of_block * F::kShare + rank) * F::kT + tile_) * kJ) * 128 + thread_;
    };
    if (segment.begin > 0) {
      uint4* const to = slot_of(block);
#pragma unroll
      for (int j = 0; j < kJ; ++j)
        store_partial(to + j * 128,
                      {writable(sums_[0][j][0]), writable(sums_[0][j][1]), writable(sums_[0][j][2]), writable(sums_[0][j][3])});
      return false;
    }
    if (segment.end == s.k_stages) return true;
    const int tile_end = (segment.tile + 1) * s.k_stages;
    constexpr int kBatch = kJ <= 4 ? kJ : F::kChains * F::kN < 128 ? 8 : 4;
    static_assert(kJ % kBatch == 0);
#pragma unroll 1
    for (int other = block + 1; other < s.n_blocks && s.parts.begin(other) < tile_end; ++other) {
      uint4* const from = slot_of(other);
#pragma unroll
      for (int first = 0; first < kJ; first += kBatch) {
        uint4 v[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) v[j] = load_partial(from + (first + j) * 128);
        const long long start = clock64();
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          while (!is_written(v[j])) {
            v[j] = load_partial(from + (first + j) * 128);
            if (clock64() - start > kSpinCycles) __trap();
          }
          store_partial(from + (first + j) * 128, {kNotWritten, kNotWritten, kNotWritten, kNotWritten});
          add(sums_[0][first + j], v[j]);
        }
      }
    }
    return true;
  }

  /// The same in a cluster: ranks 1 and up write their sums into the shared memory of rank 0.
  __device__ __forceinline__ bool join_cluster() {
    const int n = p_.schedule.cluster;
    const int rank = static_cast<int>(blockIdx.x) % n;
    if (n == 1) return true;
    const auto at = [&](int of_rank, int j) {
      return shared_.merge + ((((of_rank - 1) * F::kT + tile_) * kJ + j) * 128 + thread_) * 16;
    };
    if (rank > 0) {
      wait_for<true>(shared_.merge_free, merge_parity_ ^ 1);
      merge_parity_ ^= 1;
      const std::uint32_t barrier = in_block(shared_.merge_full, 0);
#pragma unroll
      for (int j = 0; j < kJ; ++j) store_async(in_block(at(rank, j), 0), sums_[0][j], barrier);
      return false;
    }
    wait_for<true>(shared_.merge_full, merge_parity_);
    merge_parity_ ^= 1;
#pragma unroll 1
    for (int other = 1; other < n; ++other)
#pragma unroll
      for (int j = 0; j < kJ; ++j) add(sums_[0][j], load_shared(at(other, j)));
    named_sync(15, F::kT * 128);  // all have read
    if (thread_ == 0 && tile_ == 0) {
      expect(shared_.merge_full, (n - 1) * F::kSumBytes);
      for (int other = 1; other < n; ++other) arrive_remote(in_block(shared_.merge_free, other));
    }
    return true;
  }

  __device__ __forceinline__ void store(int super_tile) {
    const int tile = (super_tile * F::kShare + static_cast<int>(blockIdx.x) % F::kShare) * F::kT + tile_;
    if constexpr (F::kEnd == End::silu) {
      __nv_bfloat16* const out = p_.out + tile * 32 + transposed_n_joined(thread_);
#pragma unroll
      for (int j = 0; j < kJ; ++j) {
        const float(&c)[4] = sums_[0][j];
        const std::uint32_t pair = transposed(pack_pair(silu(c[0]) * c[2], silu(c[1]) * c[3]));
        put(out, transposed_m(thread_, j), pair);
      }
      return;
    }
    if (F::kEnd == End::plain && (p_.flags & kDirectStores) != 0) {
#pragma unroll
      for (int j = 0; j < kJ; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int m = fragment_column(thread_, j, i);
          if (m < p_.m)
            p_.out[static_cast<std::int64_t>(m) * p_.out_stride + tile * kTileRows + fragment_row(thread_, i)] =
                __float2bfloat16_rn(sums_[0][j][i]);
        }
      return;
    }
#pragma unroll
    for (int j = 0; j < kJ; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t pair = transposed(pack_pair(sums_[0][j][2 * half], sums_[0][j][2 * half + 1]));
        const int m = transposed_m(thread_, j);
        const int n = tile * kTileRows + transposed_n(thread_, half);
        if constexpr (F::kEnd == End::residual) {
          if (m >= p_.m) continue;
          auto* const at = reinterpret_cast<float2*>(p_.residual + static_cast<std::int64_t>(m) * p_.out_stride + n);
          float2 sum = __ldcg(at);
          sum.x += low_of(pair), sum.y += high_of(pair);
          *at = sum;
        } else {
          put(p_.out + n, m, pair);
        }
      }
  }
  __device__ __forceinline__ void put(__nv_bfloat16* column, int m, std::uint32_t pair) {
    if (m < p_.m) *reinterpret_cast<std::uint32_t*>(column + static_cast<std::int64_t>(m) * p_.out_stride) = pair;
  }

  const Params& p_;
  const Shared<F>& shared_;
  int thread_, tile_, way_;
  int slot_ = 0;
  std::uint32_t parity_ = 0, merge_parity_ = 0;
  bool has_joined_ = false;
  float sums_[F::kChains][kJ][4];
};

template <class F>
__global__ void __launch_bounds__(F::kThreads, 1)
    streaming_gemm(const __grid_constant__ Params p, const __grid_constant__ CUtensorMap map,
                   const __grid_constant__ CUtensorMap weight_map) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const Shared<F> shared(memory, p);
  const bool is_copying = threadIdx.x == F::kWarpgroups * 128;
  Producer<F> producer(p, &map, &weight_map, shared);
  if (is_copying) {
    producer.init_barriers();
    if ((p.flags & kWaitFirst) == 0) producer.begin();
    prefetch_map(&map);
  }
  if ((p.flags & kLateDependents) == 0) start_dependents();
  __syncthreads();
  if constexpr (F::kCluster || F::kShare > 1) cluster_sync();  // other blocks' barriers stand
  wait_for_kernel_before();
  if (threadIdx.x >= F::kWarpgroups * 128) {
    if constexpr (F::kMovesRegisters) give_registers<F::kProducerRegisters>();
    if (is_copying) {
      if ((p.flags & kWaitFirst) != 0) producer.begin();
      producer.run();
      if ((p.flags & kLateDependents) != 0) start_dependents();
    }
    __syncwarp();
  } else {
    if constexpr (F::kMovesRegisters) take_registers<F::kConsumerRegisters>();
    Consumer<F> consumer(p, shared);
    consumer.run();
  }
  if constexpr (F::kCluster || F::kShare > 1) {
    __syncwarp();
    cluster_sync();  // no block ends while another writes to it
  }
}

}  // namespace workshop
