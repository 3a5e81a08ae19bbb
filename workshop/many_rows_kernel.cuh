/// Attention of tiles with 128 or 192 query rows: two or three consumer warpgroups of 64 rows each share the stages of
/// keys and values; one warp copies keys and values in bulk, three warps copy queries.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "kernels/cuda/device/mma.cuh"

namespace workshop {

using namespace baton::cuda;

/// A tile of one KV head: token rows of equal or growing reach over a run of keys.
struct Tile {
  int first_row = 0;
  int n_tokens = 0;
  int kv_begin = 0;
  int kv_end = 0;
  int kv_head = 0;
  int is_causal = 0;  ///< row i sees keys before first_position + i + 1, else before kv_end
  int first_position = 0;
  int first_partial = -1;  ///< of the states [token][head]; -1: the output itself is written
};

struct Problem {
  const Tile* tiles = nullptr;
  const int* worker_offsets = nullptr;  ///< of each block, and one more
  const int* blocks = nullptr;          ///< the list of blocks, of 16 tokens
  const std::byte* q = nullptr;         ///< [token][head][128] bf16
  const std::byte* kv = nullptr;        ///< the layout of kv_layout.h
  std::byte* out = nullptr;
  float* part_o = nullptr;
  float2* part_ml = nullptr;
  int n_partial_rows = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  float score_log2 = 0;
};

constexpr int kDim = 128;
constexpr int kRowBytes = 256;

template <int kGroups_, int kTokens_, bool kOverlap_, bool kTurns_>
struct Shape {
  static constexpr int kGroups = kGroups_;  ///< consumer warpgroups
  static constexpr int kTokens = kTokens_;  ///< of a stage
  static constexpr bool kOverlap = kOverlap_;
  static constexpr bool kTurns = kTurns_;
  static constexpr int kRows = 64 * kGroups;
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kPartBytes = kTokens * kRowBytes;
  static constexpr int kQueryBytes = kRows * kRowBytes;
  static constexpr int kQueryBuffers = 2;
  static constexpr int kStages = (226 * 1024 - kQueryBuffers * kQueryBytes) / (2 * kPartBytes) > 4
                                     ? 4
                                     : (226 * 1024 - kQueryBuffers * kQueryBytes) / (2 * kPartBytes);
  static constexpr int kBarrierBytes = 8 * (4 * kStages + 2 * kQueryBuffers);
  static constexpr int kSharedBytes = 2 * kStages * kPartBytes + kQueryBuffers * kQueryBytes + kBarrierBytes;
  static_assert(kStages >= 2 && kSharedBytes <= 227 * 1024);
};

#ifdef BATON_SM90A

__device__ __forceinline__ void expect_bytes(std::uint32_t barrier, int n_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(n_bytes) : "memory");
}
__device__ __forceinline__ void copy_bulk(std::uint32_t to, const void* from, int n_bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(n_bytes), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void give_turn(int id, int n_threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

#define WORKSHOP_C4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
/// c (+)= a b, both in shared memory with their 16 contiguous.
__device__ __forceinline__ void multiply_shared(float (&c)[8][4], std::uint64_t a, std::uint64_t b, int accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
      " "
      "%32, %33, p, 1, 1, 0, 0;\n\t}"
      : WORKSHOP_C4(0), WORKSHOP_C4(1), WORKSHOP_C4(2), WORKSHOP_C4(3), WORKSHOP_C4(4), WORKSHOP_C4(5), WORKSHOP_C4(6),
        WORKSHOP_C4(7)
      : "l"(a), "l"(b), "r"(accumulate));
}
__device__ __forceinline__ void multiply_shared(float (&c)[16][4], std::uint64_t a, std::uint64_t b, int accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,"
      "%61,%62,%63}, %64, %65, p, 1, 1, 0, 0;\n\t}"
      : WORKSHOP_C4(0), WORKSHOP_C4(1), WORKSHOP_C4(2), WORKSHOP_C4(3), WORKSHOP_C4(4), WORKSHOP_C4(5), WORKSHOP_C4(6),
        WORKSHOP_C4(7), WORKSHOP_C4(8), WORKSHOP_C4(9), WORKSHOP_C4(10), WORKSHOP_C4(11), WORKSHOP_C4(12), WORKSHOP_C4(13),
        WORKSHOP_C4(14), WORKSHOP_C4(15)
      : "l"(a), "l"(b), "r"(accumulate));
}
#undef WORKSHOP_C4

struct Ring {
  int stage = 0;
  int parity = 0;
  __device__ __forceinline__ void advance(int n_stages) {
    if (++stage == n_stages) stage = 0, parity ^= 1;
  }
};

template <class S>
struct Memory {
  std::uint32_t keys, values, queries;
  std::uint32_t key_full, key_empty, value_full, value_empty, query_full, query_empty;
  __device__ explicit Memory(const std::byte* memory) {
    keys = shared_address(memory);
    values = keys + S::kStages * S::kPartBytes;
    queries = values + S::kStages * S::kPartBytes;
    key_full = queries + S::kQueryBuffers * S::kQueryBytes;
    key_empty = key_full + 8 * S::kStages;
    value_full = key_empty + 8 * S::kStages;
    value_empty = value_full + 8 * S::kStages;
    query_full = value_empty + 8 * S::kStages;
    query_empty = query_full + 8 * S::kQueryBuffers;
  }
};

template <class S>
__device__ void produce_keys(const Problem& p, const Memory<S>& memory, int lane) {
  constexpr int kGranules = S::kTokens / 16;
  const std::int64_t tile_bytes = 16 * kRowBytes;
  const std::int64_t block_bytes = 2 * p.n_kv_heads * tile_bytes;
  const int granule = lane / 2;
  const int panel = lane % 2;
  Ring ring;
  const int end = __ldg(p.worker_offsets + blockIdx.x + 1);
  for (int t = __ldg(p.worker_offsets + blockIdx.x); t < end; ++t) {
    const Tile tile = p.tiles[t];
    const int begin = tile.kv_begin & ~15;
    const int n_stages = (tile.kv_end - begin + S::kTokens - 1) / S::kTokens;
    const auto block_of = [&](int stage) {
      const int position = begin + stage * S::kTokens + granule * 16;
      return stage >= 0 && granule < kGranules && position < tile.kv_end ? __ldg(p.blocks + position / 16) : -1;
    };
    int block = block_of(n_stages - 1);
    for (int stage = n_stages - 1; stage >= 0; --stage) {
      const int next_block = block_of(stage - 1);
      const int n_here = min(kGranules, (tile.kv_end - begin - stage * S::kTokens + 15) / 16);
      const std::byte* from = p.kv + block * block_bytes + tile.kv_head * tile_bytes + panel * 2048;
      const std::uint32_t offset = ring.stage * S::kPartBytes + panel * 128 * S::kTokens + granule * 2048;
      barrier_wait(memory.key_empty + 8 * ring.stage, ring.parity ^ 1);
      if (lane == 0) expect_bytes(memory.key_full + 8 * ring.stage, n_here * 4096);
      __syncwarp();
      if (block >= 0) copy_bulk(memory.keys + offset, from, 2048, memory.key_full + 8 * ring.stage);
      barrier_wait(memory.value_empty + 8 * ring.stage, ring.parity ^ 1);
      // Values behind the end count as zero, whatever is in memory.
      const int n_valid = tile.kv_end - begin - stage * S::kTokens - granule * 16;
      if (granule < kGranules && n_valid < 16) {
        const std::uint32_t to = memory.values + offset;
        for (int i = max(n_valid, 0) * 128; i < 2048; i += 16)
          asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to + i), "r"(0) : "memory");
        wgmma_see_copies();
      }
      __syncwarp();
      const int n_tokens = min(S::kTokens, tile.kv_end - begin - stage * S::kTokens);
      if (lane == 0) expect_bytes(memory.value_full + 8 * ring.stage, n_tokens * 256);
      __syncwarp();
      if (block >= 0)
        copy_bulk(memory.values + offset, from + p.n_kv_heads * tile_bytes, min(n_valid, 16) * 128,
                  memory.value_full + 8 * ring.stage);
      ring.advance(S::kStages);
      block = next_block;
    }
  }
}

template <class S>
__device__ void produce_queries(const Problem& p, const Memory<S>& memory, int thread) {
  const int group = p.n_heads / p.n_kv_heads;
  Ring ring;
  const int end = __ldg(p.worker_offsets + blockIdx.x + 1);
  for (int t = __ldg(p.worker_offsets + blockIdx.x); t < end; ++t) {
    const Tile tile = p.tiles[t];
    const int n_rows = tile.n_tokens * group;
    barrier_wait(memory.query_empty + 8 * ring.stage, ring.parity ^ 1);
    const std::uint32_t to = memory.queries + ring.stage * S::kQueryBytes;
    const std::byte* from = p.q + (static_cast<std::int64_t>(tile.first_row) * p.n_heads + tile.kv_head * group) * kRowBytes;
    for (int i = thread; i < n_rows * 16; i += 96) {
      const int row = i / 16;
      const int chunk = i % 16;
      const int token = row / group;
      const std::byte* at = from + (static_cast<std::int64_t>(token) * (p.n_heads - group) + row) * kRowBytes + chunk * 16;
      copy_16(to + row / 64 * 64 * kRowBytes + chunk / 8 * 8192 + row % 64 * 128 + ((chunk & 7) ^ (row & 7)) * 16, at);
    }
    arrive_with_copies(memory.query_full + 8 * ring.stage);
    ring.advance(S::kQueryBuffers);
  }
  wait_for_copies();
}

/// The state of one warpgroup's 64 rows.
template <class S>
class Rows {
  static constexpr int kPieces = S::kTokens / 8;

 public:
  __device__ __forceinline__ Rows(const Problem& p, const Memory<S>& memory)
      : p_(p), memory_(memory), lane_(static_cast<int>(threadIdx.x) % 32), warpgroup_(static_cast<int>(threadIdx.x) / 128) {}

  __device__ __forceinline__ void run() {
    if (S::kTurns && warpgroup_ == S::kGroups - 1) give_turn(1, 256);
    const int end = __ldg(p_.worker_offsets + blockIdx.x + 1);
    for (int t = __ldg(p_.worker_offsets + blockIdx.x); t < end; ++t) {
      tile_ = p_.tiles[t];
      barrier_wait(memory_.query_full + 8 * queries_.stage, queries_.parity);
      wgmma_see_copies();
      find_bounds();
      max_[0] = max_[1] = -INFINITY;
      sum_[0] = sum_[1] = 0;
#pragma unroll
      for (int i = 0; i < 16; ++i) out_[i][0] = out_[i][1] = out_[i][2] = out_[i][3] = 0;
      if constexpr (S::kOverlap)
        run_overlapped();
      else
        run_plainly();
      write();
      queries_.advance(S::kQueryBuffers);
    }
  }

 private:
  __device__ __forceinline__ void find_bounds() {
    group_ = p_.n_heads / p_.n_kv_heads;
    begin_ = tile_.kv_begin & ~15;
    n_stages_ = (tile_.kv_end - begin_ + S::kTokens - 1) / S::kTokens;
    inner_hi_ = tile_.is_causal != 0 ? tile_.first_position + 1 : tile_.kv_end;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warpgroup_ * 64 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + half * 8 + lane_ / 4;
      const int token = min(row / group_, tile_.n_tokens - 1);
      row_hi_[half] = tile_.is_causal != 0 ? tile_.first_position + token + 1 : tile_.kv_end;
    }
  }
  __device__ __forceinline__ int position_of(int stage) const { return begin_ + stage * S::kTokens; }
  __device__ __forceinline__ bool has_edge(int stage) const {
    return position_of(stage) < tile_.kv_begin || position_of(stage) + S::kTokens > inner_hi_;
  }
  __device__ __forceinline__ void release(std::uint32_t barrier) const {
    __syncwarp();
    if (lane_ == 0) barrier_arrive(barrier);
  }
  __device__ __forceinline__ void await_turn() const {
    if constexpr (S::kTurns) named_barrier(1 + warpgroup_, 256);
  }
  __device__ __forceinline__ void pass_turn() const {
    if constexpr (S::kTurns) give_turn(1 + (warpgroup_ + 1) % S::kGroups, 256);
  }

  __device__ __forceinline__ void start_scores(float (&scores)[kPieces][4]) {
    const std::uint32_t q = memory_.queries + queries_.stage * S::kQueryBytes + warpgroup_ * 64 * kRowBytes;
    const std::uint32_t k = memory_.keys + keys_.stage * S::kPartBytes;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i)
      multiply_shared(scores, wgmma_descriptor(q + i / 4 * 8192 + i % 4 * 32, 16, 1024),
                      wgmma_descriptor(k + i / 4 * 128 * S::kTokens + i % 4 * 32, 16, 1024), i > 0);
    wgmma_commit();
  }
  __device__ __forceinline__ void start_output() {
    const std::uint32_t v = memory_.values + values_.stage * S::kPartBytes;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < S::kTokens / 16; ++i)
      wgmma_transposed<__nv_bfloat16>(out_, weights_[i], wgmma_descriptor(v + i * 16 * 128, 128 * S::kTokens, 1024));
    wgmma_commit();
  }
  __device__ __forceinline__ void mask(float (&scores)[kPieces][4], int position) const {
    const int first = position + (lane_ & 3) * 2;
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = first + i * 8 + j % 2;
        if (at < tile_.kv_begin || at >= row_hi_[j / 2]) scores[i][j] = -INFINITY;
      }
  }
  __device__ __forceinline__ void weigh(float (&scores)[kPieces][4], float (&factor)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float m = scores[0][2 * half];
#pragma unroll
      for (int i = 0; i < kPieces; ++i) m = fmaxf(m, fmaxf(scores[i][2 * half], scores[i][2 * half + 1]));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      const float new_max = fmaxf(max_[half], m * p_.score_log2);
      const float base = new_max == -INFINITY ? 0.0f : new_max;
      factor[half] = exp2_approx(max_[half] - base);
      max_[half] = new_max;
      float l = 0;
#pragma unroll
      for (int i = 0; i < kPieces; ++i)
#pragma unroll
        for (int j = 2 * half; j < 2 * half + 2; ++j) {
          scores[i][j] = exp2_approx(fmaf(scores[i][j], p_.score_log2, -base));
          l += scores[i][j];
        }
      sum_[half] = sum_[half] * factor[half] + l;
    }
  }
  __device__ __forceinline__ void scale(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      out_[i][0] *= factor[0];
      out_[i][1] *= factor[0];
      out_[i][2] *= factor[1];
      out_[i][3] *= factor[1];
    }
  }
  __device__ __forceinline__ void pack(const float (&scores)[kPieces][4]) {
#pragma unroll
    for (int i = 0; i < kPieces / 2; ++i) {
      weights_[i][0] = pack_pair<__nv_bfloat16>(scores[2 * i][0], scores[2 * i][1]);
      weights_[i][1] = pack_pair<__nv_bfloat16>(scores[2 * i][2], scores[2 * i][3]);
      weights_[i][2] = pack_pair<__nv_bfloat16>(scores[2 * i + 1][0], scores[2 * i + 1][1]);
      weights_[i][3] = pack_pair<__nv_bfloat16>(scores[2 * i + 1][2], scores[2 * i + 1][3]);
    }
  }
  __device__ __forceinline__ void release_keys() {
    release(memory_.key_empty + 8 * keys_.stage);
    keys_.advance(S::kStages);
  }
  __device__ __forceinline__ void release_values() {
    release(memory_.value_empty + 8 * values_.stage);
    values_.advance(S::kStages);
  }

  /// Scores of the next stage, then the products of this stage's weights with its values; the next softmax runs beside
  /// the latter.
  template <bool kMasked>
  __device__ __forceinline__ void step(int position) {
    float scores[kPieces][4];
    float factor[2];
    barrier_wait(memory_.key_full + 8 * keys_.stage, keys_.parity);
    await_turn();
    own_accumulators(scores);
    start_scores(scores);
    barrier_wait(memory_.value_full + 8 * values_.stage, values_.parity);
    start_output();
    pass_turn();
    wgmma_wait<1>();
    own_accumulators(scores);
    release_keys();
    if constexpr (kMasked) mask(scores, position);
    weigh(scores, factor);
    wgmma_wait<0>();
    own_accumulators(out_);
    release_values();
    scale(factor);
    pack(scores);
  }
  __device__ __forceinline__ void run_overlapped() {
    {
      float scores[kPieces][4];
      float factor[2];
      barrier_wait(memory_.key_full + 8 * keys_.stage, keys_.parity);
      await_turn();
      own_accumulators(scores);
      start_scores(scores);
      pass_turn();
      wgmma_wait<0>();
      own_accumulators(scores);
      release_keys();
      mask(scores, position_of(n_stages_ - 1));
      weigh(scores, factor);
      pack(scores);
    }
    int stage = n_stages_ - 2;
    while (stage >= 0) {
#pragma unroll 1
      for (; stage >= 0 && has_edge(stage); --stage) step<true>(position_of(stage));
#pragma unroll 1
      for (; stage >= 0 && !has_edge(stage); --stage) step<false>(position_of(stage));
    }
    barrier_wait(memory_.value_full + 8 * values_.stage, values_.parity);
    own_accumulators(out_);
    start_output();
    wgmma_wait<0>();
    own_accumulators(out_);
    release_values();
  }

  template <bool kMasked>
  __device__ __forceinline__ void plain_step(int position) {
    float scores[kPieces][4];
    float factor[2];
    barrier_wait(memory_.key_full + 8 * keys_.stage, keys_.parity);
    own_accumulators(scores);
    start_scores(scores);
    wgmma_wait<0>();
    own_accumulators(scores);
    release_keys();
    if constexpr (kMasked) mask(scores, position);
    weigh(scores, factor);
    scale(factor);
    pack(scores);
    barrier_wait(memory_.value_full + 8 * values_.stage, values_.parity);
    own_accumulators(out_);
    start_output();
    wgmma_wait<0>();
    own_accumulators(out_);
    release_values();
  }
  __device__ __forceinline__ void run_plainly() {
    int stage = n_stages_ - 1;
    while (stage >= 0) {
#pragma unroll 1
      for (; stage >= 0 && has_edge(stage); --stage) plain_step<true>(position_of(stage));
#pragma unroll 1
      for (; stage >= 0 && !has_edge(stage); --stage) plain_step<false>(position_of(stage));
    }
  }

  __device__ __forceinline__ void write() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum_[half] += __shfl_xor_sync(~0u, sum_[half], 1);
      sum_[half] += __shfl_xor_sync(~0u, sum_[half], 2);
    }
    const int warp_row = static_cast<int>(threadIdx.x) % 128 / 32 * 16;
    const int n_rows = tile_.n_tokens * group_;
    if (tile_.first_partial >= 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warpgroup_ * 64 + warp_row + half * 8 + lane_ / 4;
        if (row >= n_rows) continue;
        const int token = row / group_;
        const std::int64_t index =
            static_cast<std::int64_t>(tile_.first_partial + token) * p_.n_heads + tile_.kv_head * group_ + row - token * group_;
        if ((lane_ & 3) == 0) p_.part_ml[index] = {max_[half], sum_[half]};
#pragma unroll
        for (int i = 0; i < 16; ++i)
          *reinterpret_cast<float2*>(p_.part_o + index * kDim + i * 8 + (lane_ & 3) * 2) = {out_[i][2 * half],
                                                                                            out_[i][2 * half + 1]};
      }
      release(memory_.query_empty + 8 * queries_.stage);
      return;
    }
    // The queries are no longer needed: their memory turns the outputs into whole rows.
    named_barrier(8 + warpgroup_, 128);
    const std::uint32_t rows = memory_.queries + queries_.stage * S::kQueryBytes + warpgroup_ * 64 * kRowBytes + warp_row * 128;
    const float inverse[2] = {sum_[0] != 0 ? 1 / sum_[0] : 0, sum_[1] != 0 ? 1 / sum_[1] : 0};
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int row = half * 8 + lane_ / 4;
        const std::uint32_t to = rows + i / 8 * 8192 + row * 128 + ((i & 7) ^ (row & 7)) * 16 + (lane_ & 3) * 4;
        const std::uint32_t pair =
            pack_pair<__nv_bfloat16>(out_[i][2 * half] * inverse[half], out_[i][2 * half + 1] * inverse[half]);
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(pair) : "memory");
      }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = i * 2 + lane_ / 16;
      const int chunk = lane_ % 16;
      int4 x;
      asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                   : "r"(rows + chunk / 8 * 8192 + row * 128 + ((chunk & 7) ^ (row & 7)) * 16)
                   : "memory");
      const int tile_row = warpgroup_ * 64 + warp_row + row;
      if (tile_row >= n_rows) continue;
      const int token = tile_row / group_;
      const std::int64_t index =
          static_cast<std::int64_t>(tile_.first_row + token) * p_.n_heads + tile_.kv_head * group_ + tile_row - token * group_;
      *reinterpret_cast<int4*>(p_.out + index * kRowBytes + chunk * 16) = x;
    }
    wgmma_see_copies();
    release(memory_.query_empty + 8 * queries_.stage);
  }

  const Problem& p_;
  const Memory<S>& memory_;
  int lane_;
  int warpgroup_;
  Tile tile_;
  int group_ = 1;
  int begin_ = 0, n_stages_ = 0, inner_hi_ = 0;
  int row_hi_[2] = {};
  Ring keys_, values_, queries_;
  float out_[16][4];
  std::uint32_t weights_[kPieces / 2][4];
  float max_[2], sum_[2];
};

#endif  // BATON_SM90A

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1) many_rows_kernel(const __grid_constant__ Problem p) {
#ifdef BATON_SM90A
  extern __shared__ __align__(1024) std::byte bytes[];
  const Memory<S> memory(bytes);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      barrier_init(memory.key_full + 8 * i, 1);
      barrier_init(memory.value_full + 8 * i, 1);
      barrier_init(memory.key_empty + 8 * i, 4 * S::kGroups);
      barrier_init(memory.value_empty + 8 * i, 4 * S::kGroups);
    }
    for (int i = 0; i < S::kQueryBuffers; ++i) {
      barrier_init(memory.query_full + 8 * i, 96);
      barrier_init(memory.query_empty + 8 * i, 4 * S::kGroups);
    }
    wgmma_see_copies();
  }
  __syncthreads();
  if (warp >= 4 * S::kGroups) {
    give_registers<S::kGroups == 2 ? 40 : 32>();
    if (warp == 4 * S::kGroups)
      produce_keys<S>(p, memory, static_cast<int>(threadIdx.x) % 32);
    else
      produce_queries<S>(p, memory, static_cast<int>(threadIdx.x) - (4 * S::kGroups + 1) * 32);
  } else {
    take_registers<S::kGroups == 2 ? 232 : 160>();
    Rows<S> rows(p, memory);
    rows.run();
  }
#endif
}

}  // namespace workshop
