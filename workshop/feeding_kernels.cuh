/// Ways to bring pieces of 4 KB, scattered over memory as the blocks of a KV cache are, through shared memory into a
/// sum.
///
/// All: piece i of the data lies at (i * scatter) mod n_pieces, n_pieces a power of two; every piece is read once;
/// thread sums end in one word a block.
#pragma once

#include "ceilings_kernels.cuh"

namespace workshop {

constexpr std::uint32_t kPieceBytes = 4096;

struct Feed {
  const char* in;
  std::uint32_t n_pieces;
  std::uint32_t scatter;
  std::uint32_t ring;  ///< stages in shared memory, of a block or of a warp
  std::uint32_t* out;

  __device__ __forceinline__ const char* piece(std::uint32_t i) const {
    return in + std::uint64_t{(i * scatter) & (n_pieces - 1)} * kPieceBytes;
  }
};

/// Barriers by their address in shared memory, which is computed once.
__device__ __forceinline__ void init_at(std::uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void expect_at(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive_at(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void wait_at(std::uint32_t barrier, std::uint32_t parity) {
#pragma unroll 1
  for (int i = 0; i < (1 << 24); ++i) {
    std::uint32_t done = 0;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}\n"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    if (done) return;
  }
  __trap();
}
__device__ __forceinline__ void bulk_at(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void copy16_at(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ std::uint32_t sum16_at(std::uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
  return sum4(v);
}

/// Eight consumer warps and their barriers behind the ring of a block.
template <int kStagePieces, int kFullArrivals>
struct BlockRing {
  static constexpr std::uint32_t kStageBytes = kStagePieces * kPieceBytes;
  std::uint32_t stages, full, empty;

  __device__ BlockRing(unsigned char* memory, std::uint32_t ring) {
    stages = shared_address(memory);
    full = stages + ring * kStageBytes;
    empty = full + 8 * ring;
    if (threadIdx.x == 0)
      for (std::uint32_t i = 0; i < ring; ++i) {
        init_at(full + 8 * i, kFullArrivals);
        init_at(empty + 8 * i, 8);
      }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncthreads();
  }

  __device__ std::uint32_t consume(const Feed& feed) const {
    std::uint32_t sum = 0, slot = 0, parity = 0;
    const std::uint32_t n_stages = feed.n_pieces / kStagePieces;
    for (std::uint32_t stage = blockIdx.x; stage < n_stages; stage += gridDim.x) {
      wait_at(full + 8 * slot, parity);
#pragma unroll
      for (int piece = 0; piece < kStagePieces; ++piece)
        sum += sum16_at(stages + slot * kStageBytes + piece * kPieceBytes + threadIdx.x * 16);
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive_at(empty + 8 * slot);
      if (++slot == feed.ring) slot = 0, parity ^= 1;
    }
    return sum;
  }
};

/// Bulk copies issued by one lane of each of kProducers warps, which take turns at the stages.
template <int kStagePieces, int kProducers>
__global__ void __launch_bounds__(256 + 32 * kProducers, 1) bulk_block_ring(const __grid_constant__ Feed feed) {
  extern __shared__ __align__(1024) unsigned char memory[];
  using Ring = BlockRing<kStagePieces, 1>;
  const Ring ring(memory, feed.ring);
  std::uint32_t sum = 0;
  const int producer = static_cast<int>(threadIdx.x / 32) - 8;
  if (producer < 0) {
    sum = ring.consume(feed);
  } else if (threadIdx.x % 32 == 0) {
    const std::uint32_t n_stages = feed.n_pieces / kStagePieces;
    std::uint32_t slot = producer, parity = 0;
    for (std::uint32_t stage = blockIdx.x + producer * gridDim.x; stage < n_stages; stage += gridDim.x * kProducers) {
      wait_at(ring.empty + 8 * slot, parity ^ 1);
      expect_at(ring.full + 8 * slot, Ring::kStageBytes);
#pragma unroll
      for (int piece = 0; piece < kStagePieces; ++piece)
        bulk_at(ring.stages + slot * Ring::kStageBytes + piece * kPieceBytes, feed.piece(stage * kStagePieces + piece),
                kPieceBytes, ring.full + 8 * slot);
      slot += kProducers;
      if (slot >= feed.ring) slot -= feed.ring, parity ^= 1;
    }
  }
  __syncwarp();
  store_block_sum(sum, feed.out + blockIdx.x);
}

/// 16-byte asynchronous copies by all lanes of kProducers warps.
template <int kStagePieces, int kProducers>
__global__ void __launch_bounds__(256 + 32 * kProducers, 1) copy_block_ring(const __grid_constant__ Feed feed) {
  extern __shared__ __align__(1024) unsigned char memory[];
  constexpr int kThreads = 32 * kProducers;
  constexpr int kCopies = kPieceBytes / 16 / kThreads;  // of a thread and piece
  using Ring = BlockRing<kStagePieces, kThreads>;
  const Ring ring(memory, feed.ring);
  std::uint32_t sum = 0;
  const int thread = static_cast<int>(threadIdx.x) - 256;
  if (thread < 0) {
    sum = ring.consume(feed);
  } else {
    const std::uint32_t n_stages = feed.n_pieces / kStagePieces;
    std::uint32_t slot = 0, parity = 0;
    for (std::uint32_t stage = blockIdx.x; stage < n_stages; stage += gridDim.x) {
      wait_at(ring.empty + 8 * slot, parity ^ 1);
#pragma unroll
      for (int piece = 0; piece < kStagePieces; ++piece) {
        const char* from = feed.piece(stage * kStagePieces + piece) + thread * 16;
        const std::uint32_t to = ring.stages + slot * Ring::kStageBytes + piece * kPieceBytes + thread * 16;
#pragma unroll
        for (int i = 0; i < kCopies; ++i) copy16_at(to + i * kThreads * 16, from + i * kThreads * 16);
      }
      asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(ring.full + 8 * slot) : "memory");
      if (++slot == feed.ring) slot = 0, parity ^= 1;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
  }
  store_block_sum(sum, feed.out + blockIdx.x);
}

/// Every warp feeds itself by bulk copies into a ring of its own: no barrier between warps.
template <int kStagePieces>
__global__ void __launch_bounds__(512, 1) bulk_warp_rings(const __grid_constant__ Feed feed) {
  extern __shared__ __align__(1024) unsigned char memory[];
  constexpr std::uint32_t kStageBytes = kStagePieces * kPieceBytes;
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
  const std::uint32_t stages = shared_address(memory) + warp * feed.ring * kStageBytes;
  const std::uint32_t full = shared_address(memory) + n_warps * feed.ring * kStageBytes + warp * feed.ring * 8;
  if (lane == 0)
    for (std::uint32_t i = 0; i < feed.ring; ++i) init_at(full + 8 * i, 1);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncwarp();
  const std::uint32_t n_stages = feed.n_pieces / kStagePieces, step = gridDim.x * n_warps;
  const std::uint32_t first = warp * gridDim.x + blockIdx.x;
  const auto issue = [&](std::uint32_t stage, std::uint32_t slot) {
    if (lane != 0 || stage >= n_stages) return;
    expect_at(full + 8 * slot, kStageBytes);
#pragma unroll
    for (int piece = 0; piece < kStagePieces; ++piece)
      bulk_at(stages + slot * kStageBytes + piece * kPieceBytes, feed.piece(stage * kStagePieces + piece), kPieceBytes,
              full + 8 * slot);
  };
  for (std::uint32_t i = 0; i < feed.ring; ++i) issue(first + i * step, i);
  std::uint32_t sum = 0, slot = 0, parity = 0;
  for (std::uint32_t stage = first; stage < n_stages; stage += step) {
    wait_at(full + 8 * slot, parity);
#pragma unroll
    for (std::uint32_t at = 0; at < kStageBytes; at += 512) sum += sum16_at(stages + slot * kStageBytes + at + lane * 16);
    __syncwarp();
    issue(stage + feed.ring * step, slot);
    if (++slot == feed.ring) slot = 0, parity ^= 1;
  }
  store_block_sum(sum, feed.out + blockIdx.x);
}

/// Every warp feeds itself by 16-byte asynchronous copies, kDepth stages ahead (feed.ring is not read).
template <int kStagePieces, int kDepth>
__global__ void __launch_bounds__(512, 1) copy_warp_rings(const __grid_constant__ Feed feed) {
  extern __shared__ __align__(1024) unsigned char memory[];
  constexpr std::uint32_t kStageBytes = kStagePieces * kPieceBytes;
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
  const std::uint32_t stages = shared_address(memory) + warp * kDepth * kStageBytes + lane * 16;
  const std::uint32_t n_stages = feed.n_pieces / kStagePieces, step = gridDim.x * n_warps;
  const std::uint32_t first = warp * gridDim.x + blockIdx.x;
  const auto issue = [&](std::uint32_t stage, std::uint32_t slot) {
    if (stage < n_stages) {
#pragma unroll
      for (int piece = 0; piece < kStagePieces; ++piece) {
        const char* from = feed.piece(stage * kStagePieces + piece) + lane * 16;
#pragma unroll
        for (std::uint32_t at = 0; at < kPieceBytes; at += 512)
          copy16_at(stages + slot * kStageBytes + piece * kPieceBytes + at, from + at);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  for (int i = 0; i < kDepth - 1; ++i) issue(first + i * step, i);
  std::uint32_t sum = 0, slot = 0;
  for (std::uint32_t stage = first; stage < n_stages; stage += step) {
    issue(stage + (kDepth - 1) * step, slot == 0 ? kDepth - 1 : slot - 1);
    asm volatile("cp.async.wait_group %0;" ::"n"(kDepth - 1) : "memory");
    __syncwarp();
#pragma unroll
    for (std::uint32_t at = 0; at < kStageBytes; at += 512) sum += sum16_at(stages + slot * kStageBytes + at);
    __syncwarp();
    if (++slot == kDepth) slot = 0;
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  store_block_sum(sum, feed.out + blockIdx.x);
}

/// Plain loads of scattered pieces, a piece a warp, all 8 loads in flight: what the others are measured against.
__global__ void __launch_bounds__(512, 2) plain_pieces(const __grid_constant__ Feed feed) {
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
  std::uint32_t sum = 0;
  for (std::uint32_t i = blockIdx.x * n_warps + warp; i < feed.n_pieces; i += gridDim.x * n_warps) {
    const uint4* at = reinterpret_cast<const uint4*>(feed.piece(i)) + lane;
    uint4 v[8];
#pragma unroll
    for (int u = 0; u < 8; ++u) v[u] = load16<false>(at + u * 32);
#pragma unroll
    for (int u = 0; u < 8; ++u) sum += sum4(v[u]);
  }
  store_block_sum(sum, feed.out + blockIdx.x);
}

}  // namespace workshop
