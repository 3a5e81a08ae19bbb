/// e4m3 keys and values as f16, and queries too, in the wide attention kernel: wgmma reads its operands from shared memory.
/// Three producer warps convert stages from the ring of copies into the ring of the consumers, once for 128 query rows.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/e4m3.cuh"
#include "kernels/cuda/attention/wide/tile.cuh"

#ifdef BATON_SM90A

namespace baton::cuda {

/// Where a chunk of 16 bytes of a tile's query row lies: each warpgroup's 64 rows panel by panel, with 128-byte swizzle.
template <class Tile>
__device__ __forceinline__ std::uint32_t query_address(std::uint32_t queries, int row, int chunk) {
  return queries + row / 64 * 64 * Tile::kRowBytes + chunk / 8 * Tile::kPanelBytes + row % 64 * 128 +
         ((chunk & 7) ^ (row & 7)) * 16;
}

/// The part of a thread of the query warps, of which `thread` is the number. The warps take turns at the parts of stages, so
/// that what one waits for does not stop the others.
template <class Tile>
class WideWidener {
  static constexpr int kChunks = Tile::kCopiedRowBytes / 16;  ///< of a token's row in e4m3
  static constexpr int kPartChunks = Tile::kStageTokens * kChunks;
  static constexpr int kTokenStep = 32 / kChunks;  ///< tokens that a warp reads at a time; swizzles have a period of two
  static_assert(2 * kTokenStep % 8 == 0 && (kChunks == 4 || kChunks == 8) && kPartChunks % 128 == 0);

 public:
  __device__ WideWidener(const WideMemory<Tile>& memory, int thread)
      : memory_(memory), thread_(thread), n_before_(thread / 32) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = thread % 32 / kChunks + i * kTokenStep;
      const int chunk = thread % kChunks ^ (kChunks == 8 ? token & 7 : token >> 1 & 3);
      // In the second panel the odd one of the two chunks is written first, so that eight threads use all banks.
      is_second_[i] = chunk >= 4;
      to_[i] =
          chunk / 4 * 128 * Tile::kStageTokens + token * 128 + ((2 * chunk + (is_second_[i] ? 1 : 0)) % 8 ^ token & 7) * 16;
    }
  }

  /// Makes f16 of a tile's queries, which this thread has copied; a row beyond f16 is scaled (RowFactors).
  __device__ __forceinline__ void widen_queries(std::uint32_t queries, int n_rows, float* factors) const {
    constexpr int kRowChunks = Tile::kRowBytes / 16;  // neighbouring threads
    wait_for_copies();
#pragma unroll 1
    for (int i = thread_; i - thread_ % 32 < n_rows * kRowChunks; i += Tile::kQueryThreads) {
      const int row = i / kRowChunks;
      const std::uint32_t at = query_address<Tile>(queries, row, i % kRowChunks);
      const bool is_query = row < n_rows;
      const uint4 x = is_query ? load_shared(at) : uint4{};
      unsigned most =
          largest_magnitude(__vmaxu2(__vmaxu2(magnitudes(x.x), magnitudes(x.y)), __vmaxu2(magnitudes(x.z), magnitudes(x.w))));
#pragma unroll
      for (int distance = 1; distance < kRowChunks; distance *= 2) most = max(most, __shfl_xor_sync(~0u, most, distance));
      const HalfScale scale(most);
      if (!is_query) continue;
      store_shared(at, {scale.to_half(x.x), scale.to_half(x.y), scale.to_half(x.z), scale.to_half(x.w)});
      if (i % kRowChunks == 0) factors[row] = scale.factor;
    }
    wgmma_see_copies();
  }

  /// Makes f16 of a tile's stages, in the order in which the key warp copies them.
  __device__ __forceinline__ void widen_tile(const AttentionParams& p, const AttentionItem& item, int row, int n_token_rows) {
    const TileBounds<Tile> bounds(p.rows + item.first_row + row, n_token_rows, item.kv_begin, item.kv_end, thread_ % 32);
    const int begin = bounds.begin();
#pragma unroll 1
    for (int position = bounds.last(); position >= begin; position -= Tile::kStageTokens) {
      widen_part(memory_.copies.key_part(), memory_.stages.key_part());
      widen_part(memory_.copies.value_part(), memory_.stages.value_part());
      copied_.advance(Tile::kCopiedStages);
      stage_.advance(Tile::kStages);
    }
  }

 private:
  /// Called by all warps for each part in turn.
  __device__ __forceinline__ void widen_part(const StagePart& copied, const StagePart& widened) {
    if (--n_before_ >= 0) return;
    n_before_ = Tile::kQueryWarps - 1;
    barrier_wait(copied.full + 8 * copied_.stage, copied_.parity);
    barrier_wait(widened.empty + 8 * stage_.stage, stage_.parity ^ 1);
    std::uint32_t from = copied.data + copied_.stage * Tile::kCopiedPartBytes + thread_ % 32 * 16;
    std::uint32_t to = widened.data + stage_.stage * Tile::kPartBytes;
    constexpr int kTogether = 4;
#pragma unroll 1
    for (int first = 0; first < kPartChunks; first += 32 * kTogether, from += 512 * kTogether) {
      uint4 x[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) x[i] = load_shared(from + 512 * i);
#pragma unroll
      for (int i = 0; i < kTogether; ++i) write(to + i / 2 * 2 * kTokenStep * 128, i % 2, x[i]);
      to += kTogether * kTokenStep * 128;
    }
    wgmma_see_copies();
    __syncwarp();
    if (thread_ % 32 != 0) return;
    barrier_arrive(widened.full + 8 * stage_.stage);
    barrier_arrive(copied.empty + 8 * copied_.stage);
  }
  /// Writes 16 e4m3 numbers as two chunks.
  __device__ __forceinline__ void write(std::uint32_t to, int i, uint4 x) const {
    const uint2 low = {x.x, x.y};
    const uint2 high = {x.z, x.w};
    const std::uint32_t at = to + to_[i];
    store_shared(at, e4m3_eight_to_half(is_second_[i] ? high : low));
    store_shared(at ^ 16, e4m3_eight_to_half(is_second_[i] ? low : high));
  }

  const WideMemory<Tile>& memory_;
  int thread_;
  int n_before_;         ///< parts that other warps convert before this one's next
  std::uint32_t to_[2];  ///< of the first two chunks, in a stage's part
  bool is_second_[2];    ///< their panel is the second one
  RingPosition copied_, stage_;
};

/// In place of a WideWidener where keys and values stay as they are stored.
template <class Tile>
struct NoWideWidener {
  __device__ NoWideWidener(const WideMemory<Tile>&, int) {}
};

}  // namespace baton::cuda

#endif  // BATON_SM90A
