/// The kernels whose times are ceilings: reads by plain loads and by bulk copies, products from shared memory, small
/// waits.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace workshop {

// ---- Small pieces --------------------------------------------------------------------------------------------------------

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}
/// Grids launched to overlap: let the next one start / wait until the one before has finished.
__device__ __forceinline__ void start_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void wait_for_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

__device__ __forceinline__ void barrier_init(std::uint64_t* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_expect(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/// Waits for a phase; traps after some seconds, so that a mistake ends the program and not the machine.
__device__ __forceinline__ void barrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
  for (int i = 0; i < (1 << 24); ++i) {
    std::uint32_t done = 0;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}\n"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
    if (done) return;
  }
  __trap();
}
__device__ __forceinline__ void bulk_copy(void* shared, const void* global, std::uint32_t bytes, std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

template <bool kPrefetch256>
__device__ __forceinline__ uint4 load16(const uint4* at) {
  uint4 v;
  if constexpr (kPrefetch256)
    asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
  else
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
  return v;
}
__device__ __forceinline__ std::uint32_t sum4(uint4 v) { return v.x + v.y + v.z + v.w; }

/// Sum over the block, written by thread 0.
__device__ __forceinline__ void store_block_sum(std::uint32_t sum, std::uint32_t* out) {
  __shared__ std::uint32_t total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  const std::uint32_t of_warp = __reduce_add_sync(0xffffffffu, sum);
  if (threadIdx.x % 32 == 0) atomicAdd(&total, of_warp);
  __syncthreads();
  if (threadIdx.x == 0) *out = total;
}

// ---- Data and the reference ----------------------------------------------------------------------------------------------

__global__ void fill_random(std::uint32_t* data, std::uint64_t n) {
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < n;
       i += std::uint64_t{gridDim.x} * blockDim.x) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 0x9E3779B1u + static_cast<std::uint32_t>(i >> 32);
    x ^= x >> 16, x *= 0x85EBCA6Bu, x ^= x >> 13, x *= 0xC2B2AE35u, x ^= x >> 16;
    data[i] = x;
  }
}

/// One word a thread and an atomic a thread: nothing in common with the kernels under test.
__global__ void reference_sum(const std::uint32_t* data, std::uint64_t n, std::uint32_t* out) {
  std::uint32_t sum = 0;
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < n;
       i += std::uint64_t{gridDim.x} * blockDim.x)
    sum += data[i];
  atomicAdd(out, sum);
}

// ---- Reads by plain loads ------------------------------------------------------------------------------------------------

/// Block b reads chunks b / share, then every (grid / share)-th: `share` neighbours read the same lines. A chunk is U
/// loads of 16 bytes by each thread.
template <int U, int kThreads, int kBlocksPerSm, bool kPrefetch256>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    plain_read(const uint4* in, std::uint32_t n_chunks, int share, bool overlap, std::uint32_t* out) {
  if (overlap) {
    start_dependents();
    wait_for_predecessor();
  }
  std::uint32_t sum = 0;
  for (std::uint32_t chunk = blockIdx.x / share; chunk < n_chunks; chunk += gridDim.x / share) {
    const uint4* at = in + std::uint64_t{chunk} * (U * kThreads) + threadIdx.x;
    uint4 v[U];
#pragma unroll
    for (int u = 0; u < U; ++u) v[u] = load16<kPrefetch256>(at + u * kThreads);
#pragma unroll
    for (int u = 0; u < U; ++u) sum += sum4(v[u]);
  }
  store_block_sum(sum, out + blockIdx.x);
}

// ---- Reads by bulk copies ------------------------------------------------------------------------------------------------

struct BulkRead {
  const char* in;
  std::uint32_t n_stages;     ///< in all: the buffer over stage_bytes
  std::uint32_t stage_bytes;  ///< what one barrier waits for
  std::uint32_t piece_bytes;  ///< of one copy
  std::uint32_t ring;         ///< stages in shared memory
  std::uint32_t scatter;      ///< odd: piece i lies at (i * scatter) mod n_pieces (a power of two); 1: in order
  int share;                  ///< neighbouring blocks that read the same stages
  bool overlap;
  std::uint32_t* out;
};

constexpr int kBulkThreads = 288;  // 8 warps that read, 1 that copies
constexpr int kMaxRing = 48;

__global__ void __launch_bounds__(kBulkThreads) bulk_read(const __grid_constant__ BulkRead args) {
  extern __shared__ __align__(1024) unsigned char ring[];
  __shared__ std::uint64_t full[kMaxRing], empty[kMaxRing];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (args.overlap) start_dependents();
  if (threadIdx.x == 0)
    for (std::uint32_t i = 0; i < args.ring; ++i) {
      barrier_init(&full[i], 1);
      barrier_init(&empty[i], 8);
    }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();
  if (args.overlap) wait_for_predecessor();
  const std::uint32_t first = blockIdx.x / args.share, step = gridDim.x / args.share;
  std::uint32_t sum = 0, slot = 0, phase = 0;
  if (warp == 8) {
    const std::uint32_t pieces = args.stage_bytes / args.piece_bytes;
    const std::uint32_t mask = args.scatter == 1 ? 0xffffffffu : args.n_stages * pieces - 1;
    for (std::uint32_t stage = first; stage < args.n_stages; stage += step) {
      barrier_wait(&empty[slot], phase ^ 1);
      if (lane == 0) barrier_expect(&full[slot], args.stage_bytes);
      __syncwarp();
      for (std::uint32_t piece = lane; piece < pieces; piece += 32) {
        const std::uint32_t at = ((stage * pieces + piece) * args.scatter) & mask;
        bulk_copy(ring + slot * args.stage_bytes + piece * args.piece_bytes, args.in + std::uint64_t{at} * args.piece_bytes,
                  args.piece_bytes, &full[slot]);
      }
      if (++slot == args.ring) slot = 0, phase ^= 1;
    }
  } else {
    for (std::uint32_t stage = first; stage < args.n_stages; stage += step) {
      barrier_wait(&full[slot], phase);
      for (std::uint32_t at = threadIdx.x * 16; at < args.stage_bytes; at += 256 * 16)
        sum += sum4(*reinterpret_cast<const uint4*>(ring + slot * args.stage_bytes + at));
      __syncwarp();
      if (lane == 0) barrier_arrive(&empty[slot]);
      if (++slot == args.ring) slot = 0, phase ^= 1;
    }
  }
  store_block_sum(sum, args.out + blockIdx.x);
}

// ---- Launches and dependent loads ----------------------------------------------------------------------------------------

__global__ void empty_kernel(bool overlap) {
  if (overlap) {
    start_dependents();
    wait_for_predecessor();
  }
}

/// What a block of a planned kernel does first: header -> item -> block id -> the first 4 KB. `depth` of the three
/// loads are made, the others' results are known. The tables hold permutations, so that all blocks together read the
/// same pieces.
struct ChainRead {
  const std::uint32_t* header;     ///< one word, 0
  const std::uint32_t* items;      ///< [grid], 32 words apart
  const std::uint32_t* block_ids;  ///< [grid], 32 words apart
  const char* in;
  int depth;
  bool overlap;      ///< launched to overlap
  bool chain_first;  ///< follow the chain before waiting for the predecessor
  std::uint32_t* out;
};

__global__ void __launch_bounds__(kBulkThreads) chain_read(const __grid_constant__ ChainRead args) {
  extern __shared__ __align__(1024) unsigned char piece[];
  __shared__ std::uint64_t full;
  if (args.overlap) start_dependents();
  if (threadIdx.x == 0) barrier_init(&full, 1);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();
  if (args.overlap && !args.chain_first) wait_for_predecessor();
  if (threadIdx.x == 0) {
    const auto load = [](const std::uint32_t* at) { return *reinterpret_cast<const volatile std::uint32_t*>(at); };
    std::uint32_t at = blockIdx.x;
    if (args.depth >= 3) at += load(args.header);
    if (args.depth >= 2) at = load(args.items + at * 32);
    if (args.depth >= 1) at = load(args.block_ids + at * 32);
    if (args.overlap && args.chain_first) wait_for_predecessor();
    barrier_expect(&full, 4096);
    bulk_copy(piece, args.in + std::uint64_t{at} * 4096, 4096, &full);
  }
  barrier_wait(&full, 0);
  store_block_sum(threadIdx.x < 256 ? sum4(reinterpret_cast<const uint4*>(piece)[threadIdx.x]) : 0, args.out + blockIdx.x);
}

// ---- Contended atomics ---------------------------------------------------------------------------------------------------

/// Thread 0 of each block counts up `n` times, each time after a fence and after the answer of the last time.
__global__ void count_up(unsigned* counters, int n_counters, int n, bool acq_rel, unsigned* out) {
  if (threadIdx.x != 0) return;
  unsigned seen = 0;
  for (int i = 0; i < n; ++i) {
    unsigned* counter = counters + ((blockIdx.x + i + (seen >> 31)) % n_counters) * 32;
    if (acq_rel) {
      asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(seen) : "l"(counter) : "memory");
    } else {
      __threadfence();
      seen = atomicInc(counter, 0xffffffffu);
    }
  }
  out[blockIdx.x] = seen;
}

// ---- Products ------------------------------------------------------------------------------------------------------------

constexpr int kProductDim = 128;  // of a row of A and of a token of B
constexpr int kTileTokens = 64;   // of B that mma.sync takes at a time
constexpr int kProductTiles = 4;

/// B [tokens, 128] of the tiles into shared memory as two panels of 128 bytes a token, chunks swizzled by the token.
__device__ __forceinline__ void load_tiles(unsigned char* tiles, const __nv_bfloat16* b, int tokens_of_tile, int n_tokens) {
  const uint4* in = reinterpret_cast<const uint4*>(b);
  for (int i = threadIdx.x; i < n_tokens * 16; i += blockDim.x) {
    const int token = i / 16, chunk = i % 16, in_tile = token % tokens_of_tile;
    unsigned char* tile = tiles + (token / tokens_of_tile) * tokens_of_tile * 256;
    *reinterpret_cast<uint4*>(tile + (chunk / 8) * tokens_of_tile * 128 + in_tile * 128 + ((chunk % 8) ^ (in_tile & 7)) * 16) =
        in[i];
  }
}

/// Fragment k of 16 rows of A [.., 128].
__device__ __forceinline__ void load_a(const __nv_bfloat16* a, int k, std::uint32_t (&fragment)[4]) {
  const int lane = threadIdx.x % 32;
  const __nv_bfloat16* at = a + (lane / 4) * kProductDim + k * 16 + (lane % 4) * 2;
  fragment[0] = *reinterpret_cast<const std::uint32_t*>(at);
  fragment[1] = *reinterpret_cast<const std::uint32_t*>(at + 8 * kProductDim);
  fragment[2] = *reinterpret_cast<const std::uint32_t*>(at + 8);
  fragment[3] = *reinterpret_cast<const std::uint32_t*>(at + 8 * kProductDim + 8);
}

/// Each of 8 warps multiplies its R * 16 rows of A (registers) by one tile of 64 tokens after the other.
template <int R>
__global__ void __launch_bounds__(256, 1) mma_sync(const __nv_bfloat16* a, const __nv_bfloat16* b, int n_tiles, double* out) {
  extern __shared__ __align__(1024) unsigned char tiles[];
  load_tiles(tiles, b, kTileTokens, kTileTokens * kProductTiles);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  std::uint32_t fragments[R][8][4];
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int k = 0; k < 8; ++k) load_a(a + (warp * R + r) * 16 * kProductDim, k, fragments[r][k]);
  __syncthreads();
  float sums[R][8][4] = {};
  const int row = lane & 7, matrix = lane >> 3;
  const std::uint32_t base = shared_address(tiles) + ((matrix >> 1) * 8 + row) * 128;
  for (int i = 0; i < n_tiles; ++i) {
    const std::uint32_t tile = base + ((warp + i) % kProductTiles) * kTileTokens * 256;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const int chunk = k * 2;
      const std::uint32_t at = tile + (chunk / 8) * kTileTokens * 128 + ((((chunk % 8) | (matrix & 1)) ^ row) * 16);
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        std::uint32_t b0, b1, b2, b3;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(b0), "=r"(b1), "=r"(b2), "=r"(b3)
                     : "r"(at + n * 8 * 128));
#pragma unroll
        for (int r = 0; r < R; ++r) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float(&d)[4] = sums[r][n + half];
            const std::uint32_t(&f)[4] = fragments[r][k];
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                : "r"(f[0]), "r"(f[1]), "r"(f[2]), "r"(f[3]), "r"(half ? b2 : b0), "r"(half ? b3 : b1));
          }
        }
      }
    }
  }
  double total = 0;
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int n = 0; n < 8; ++n) total += double(sums[r][n][0]) + sums[r][n][1] + sums[r][n][2] + sums[r][n][3];
  atomicAdd(out, total);
}

#define WGMMA_F8(d, i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])

/// d [64 x N] += A fragment (registers) times the 16 dimensions of N tokens that `descriptor` names.
__device__ __forceinline__ void wgmma(float (&d)[32], const std::uint32_t (&a)[4], std::uint64_t descriptor) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
      " "
      "{%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}\n"
      : WGMMA_F8(d, 0), WGMMA_F8(d, 8), WGMMA_F8(d, 16), WGMMA_F8(d, 24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor), "r"(1));
}
__device__ __forceinline__ void wgmma(float (&d)[64], const std::uint32_t (&a)[4], std::uint64_t descriptor) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,"
      "%62,%63}, {%64,%65,%66,%67}, %68, p, 1, 1, 0;\n}\n"
      : WGMMA_F8(d, 0), WGMMA_F8(d, 8), WGMMA_F8(d, 16), WGMMA_F8(d, 24), WGMMA_F8(d, 32), WGMMA_F8(d, 40), WGMMA_F8(d, 48),
        WGMMA_F8(d, 56)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor), "r"(1));
}
#undef WGMMA_F8

/// Each warpgroup multiplies its 64 rows of A (registers) by one tile of N tokens after the other (K-major, 128-byte
/// swizzle).
template <int N>
__global__ void __launch_bounds__(384, 1)
    wgmma_registers(const __nv_bfloat16* a, const __nv_bfloat16* b, int n_tiles, double* out) {
  extern __shared__ __align__(1024) unsigned char tiles[];
  load_tiles(tiles, b, N, N * kProductTiles);
  const int warp = threadIdx.x / 32;
  std::uint32_t fragments[8][4];
#pragma unroll
  for (int k = 0; k < 8; ++k) load_a(a + warp * 16 * kProductDim, k, fragments[k]);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  float sums[N / 2] = {};
  // Start address, leading offset (unused by swizzled K-major tiles), 1024 bytes between groups of 8 tokens, 128-byte
  // swizzle.
  const std::uint64_t constant_part = (std::uint64_t{1} << 16) | (std::uint64_t{1024 >> 4} << 32) | (std::uint64_t{1} << 62);
  for (int i = 0; i < n_tiles; ++i) {
    const std::uint32_t tile = shared_address(tiles) + ((warp / 4 + i) % kProductTiles) * N * 256;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < 8; ++k)
      wgmma(sums, fragments[k], constant_part | (((tile + (k / 4) * N * 128 + (k % 4) * 32) & 0x3ffff) >> 4));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  double total = 0;
#pragma unroll
  for (int i = 0; i < N / 2; ++i) total += sums[i];
  atomicAdd(out, total);
}

}  // namespace workshop
