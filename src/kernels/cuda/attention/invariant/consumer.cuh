/// The consumer warps of batch-invariant attention: every stage in one way, and a state of its own for every chunk.
#pragma once

#include "kernels/attention_costs.h"
#include "kernels/cuda/attention/general/consumer.cuh"
#include "kernels/cuda/attention/invariant/fold.cuh"

namespace baton::cuda {

/// Stages begin at multiples of kStageTokens. The item's state, which chunks are folded into, has its first columns in
/// shared memory (in place of the scratch memory of token groups) and kKeptTiles x 8 columns in registers. With heads of 256, a
/// block that has less than 128 KiB keeps its 64 KiB of states in device memory, which the L2 holds. Producers make f16 of e4m3
/// keys and values for every tile.
template <class T, int kDim, bool kFp8>
struct InvariantTile : AttentionTile<T, kDim, kFp8> {
  using Base = AttentionTile<T, kDim, kFp8>;
  static constexpr bool kWidens = kFp8;
  static constexpr bool kAlignsStages = true;
  static constexpr int kKeptTiles = kDim > 128 ? 0 : kDim == 128 ? 3 : kDim / 8;
  static constexpr int kScratchFloats = (kDim / 8 - kKeptTiles) * 4 * kConsumerThreads;
  static constexpr int kFixedBytes = Base::kFixedBytes + (kScratchFloats - Base::kScratchFloats) * 4;
  /// With heads of 256 the state takes 64 KiB: no room for a second block on a multiprocessor.
  static constexpr int kMostResidents = kDim > 128 ? 1 : 2;
  static constexpr bool kMayKeepScratchOutside = !Base::kQueriesInRegisters;

  static __device__ __forceinline__ int first_position(int kv_begin) { return kv_begin & -Base::kStageTokens; }
};

/// Each warp computes 16 of a tile's 64 rows over all tokens, whether there are so many rows or not, a stage after the
/// other: by wgmma where the tile has it, otherwise by mma.sync, also where some rows do not see all of the stage. The
/// weights of tokens that a row does not see are 0, which changes none of its sums. So the bits of a row do not depend
/// on the rows beside it.
template <class Tile>
class InvariantConsumer : public Consumer<Tile> {
  using Base = Consumer<Tile>;
  using T = typename Tile::Operand;
  /// Keys and values as the matmuls read them.
  using Stage = std::conditional_t<Tile::kWidens, typename Tile::Wide, Tile>;
  static constexpr int kTokens = Tile::kStageTokens;
  static constexpr int kColumnTiles = Tile::kHeadDim / 8;
  static constexpr int kSharedTiles = kColumnTiles - Tile::kKeptTiles;
  static_assert(kAttentionChunk % kTokens == 0);

 public:
  using Base::Base;

  __device__ void run() {
    this->run_tiles([this] { run_tile(); });
  }

 private:
  __device__ __forceinline__ void run_tile() {
    row_shift_ = 2;
    token_groups_ = 1;
    row_group_ = warp_;
    token_group_ = 0;
    this->find_bounds();
    this->template take_queries<Stage>();
    if (this->has_scratch_over_queries()) named_barrier(kConsumerBarrier, kConsumerThreads);  // all warps have their queries
    this->empty_state();
    run_stages();
    if constexpr (!Tile::kQueriesInRegisters) this->release_queries(false);
    this->release_queries(true);
    this->forget_blind_rows();
    write_rows(0);
    write_rows(1);
  }

  __device__ __forceinline__ void run_stages() {
    bool is_first_chunk = true;
    int position = Tile::first_position(task_.kv_begin);
#pragma unroll 1
    while (position < task_.kv_end) {
      if (is_warmup_ == 0) barrier_wait(shared_.full + 8 * ring_.stage, ring_.parity);
      const std::uint32_t keys = as_of_now(shared_.stages + ring_.stage * Tile::kStageBytes);
      if (position < hull_hi_ && position + kTokens > hull_lo_)
        add_stage(keys, position);
      else
        await_values();
      if (is_warmup_ != 0) return;
      own_accumulators(out_);
      this->release(shared_.empty + 8 * ring_.stage);
      ring_.advance(plan_.n_stages);
      position += kTokens;
      const bool is_last = position >= task_.kv_end;
      if (position % kAttentionChunk == 0 || is_last) {
        end_chunk(is_first_chunk, is_last);
        is_first_chunk = false;
      }
    }
  }

  /// Where keys and values have slots of their own (Widener): gives the keys' back and waits for the values'.
  __device__ __forceinline__ void await_values() {
    if constexpr (Tile::kWidens) {
      if (is_warmup_ != 0) return;
      this->leave_keys();
      barrier_wait(shared_.full + 8 * ring_.stage, ring_.parity);
    }
  }

  /// Adds a stage to the chunk's state.
  __device__ __forceinline__ void add_stage(std::uint32_t keys, int position) {
    const std::uint32_t values = keys + Stage::kPartBytes;
    const bool has_others = position < hull_lo_ || position + kTokens > hull_hi_;
    if constexpr (Stage::kWgmma) {
#ifdef BATON_SM90A
      if (!Tile::kWidens && has_others) clear_values(values, position);
      float scores[kTokens / 8][4];
      if constexpr (kHasQueryCopies) {
        std::uint32_t queries[Tile::kHeadDim / 16][4];
        copy_queries(queries);
        score_stage<T>(scores, queries, keys);
      } else {
        score_stage<T>(scores, this->queries_, keys);
      }
      await_values();
      if constexpr (Tile::kWidens) {
        wgmma_see_copies();
        if (has_others) clear_values(values, position);
      }
      if (p_.has_softcap) this->template cap<kTokens>(scores);
      if (position < inner_lo_ || position + kTokens > inner_hi_) {
#pragma unroll
        for (int i = 0; i < kTokens / 8; ++i) this->mask(scores[i], position + 8 * i);
      }
      this->template weigh<kTokens>(scores);
      add_values<T>(out_, scores, values);
#endif
    } else {
      if constexpr (Tile::kWidens)
        if (is_warmup_ == 0) barrier_wait(shared_.full + 8 * (ring_.stage + 1), ring_.parity);
      if (warp_ * 16 < n_rows_) {
#pragma unroll 1
        for (int token = 0; token < kTokens; token += 16)
          if (position + token < hull_hi_ && position + token + 16 > hull_lo_)
            this->template step<Stage>({{keys, token, position + token}});
      }
      await_values();
    }
  }

  /// For heads of 64, ptxas 13.0 keeps the queries in the registers that it then gives to the weights, and does not restore
  /// them for the next stage. Queries that are computed in each stage, from a zero that it does not know, have their own.
  static constexpr bool kHasQueryCopies = Tile::kHeadDim == 64;
  __device__ __forceinline__ void copy_queries(std::uint32_t (&queries)[Tile::kHeadDim / 16][4]) const {
    std::uint32_t zero;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(zero) : "r"(shared_address(&shared_.task->reserved)) : "memory");
#pragma unroll
    for (int k = 0; k < Tile::kHeadDim / 16; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) queries[k][i] = this->queries_[k][i] ^ zero;
  }

#ifdef BATON_SM90A
  /// Sets values of tokens outside the hull to 0: they may be NaN, which times a weight of 0 is NaN.
  __device__ __forceinline__ void clear_values(std::uint32_t values, int position) const {
    constexpr int kChunks = Stage::kRowBytes / 16;
    if (is_warmup_ == 0) {
#pragma unroll 1
      for (int i = this->thread_; i < kTokens * kChunks; i += kConsumerThreads) {
        const int token = i / kChunks;
        if (position + token >= hull_lo_ && position + token < hull_hi_) continue;
        store_shared(Stage::chunk_address(values, token, i % kChunks), {});
      }
    }
    wgmma_see_copies();
    named_barrier(kConsumerBarrier, kConsumerThreads);
  }
#endif

  /// Folds the chunk's state into the item's. The item's ends in the registers of the chunk's.
  __device__ __forceinline__ void end_chunk(bool is_first, bool is_last) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum_[half] += __shfl_xor_sync(~0u, sum_[half], 1);
      sum_[half] += __shfl_xor_sync(~0u, sum_[half], 2);
    }
    scale_values<Tile>(out_, p_.v_scale);
    float4* const shared = reinterpret_cast<float4*>(shared_.scratch) + this->thread_;
    if (!is_first) {
      const StateFold folds[2] = {{state_max_[0], max_[0]}, {state_max_[1], max_[1]}};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        max_[half] = folds[half].max();
        sum_[half] = folds[half](state_sum_[half], sum_[half]);
      }
#pragma unroll
      for (int i = 0; i < kColumnTiles; ++i) {
        const float4 state = i < kSharedTiles ? shared[i * kConsumerThreads] : kept_[i < kSharedTiles ? 0 : i - kSharedTiles];
        out_[i][0] = folds[0](state.x, out_[i][0]);
        out_[i][1] = folds[0](state.y, out_[i][1]);
        out_[i][2] = folds[1](state.z, out_[i][2]);
        out_[i][3] = folds[1](state.w, out_[i][3]);
      }
    }
    if (is_last) return;
#pragma unroll
    for (int i = 0; i < kColumnTiles; ++i) {
      const float4 state = {out_[i][0], out_[i][1], out_[i][2], out_[i][3]};
      if (i < kSharedTiles)
        shared[i * kConsumerThreads] = state;
      else
        kept_[i - kSharedTiles] = state;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      state_max_[half] = max_[half];
      state_sum_[half] = sum_[half];
    }
    this->empty_state();
  }

  /// Writes outputs or partial states of this thread's row of eight. Neighbouring lanes exchange pairs of columns, so that
  /// each writes four columns of every second column tile.
  __device__ __forceinline__ void write_rows(int half) const {
    const int row = warp_ * 16 + half * 8 + (lane_ >> 2);
    const bool is_written = row < n_rows_ && is_warmup_ == 0;
    const int token_row = this->by_group(row);
    const int head = task_.kv_head * group_ + row - token_row * group_;
    const bool is_direct = task_.is_direct != 0;
    const std::int64_t index =
        static_cast<std::int64_t>((is_direct ? task_.first_row : task_.first_partial) + token_row) * p_.n_heads + head;
    const bool is_odd = (lane_ & 1) != 0;
    const float factor = output_factor(finished_sum(p_, sink_of(p_, head), max_[half], sum_[half]));  // of direct rows
#pragma unroll
    for (int i = 0; i < kColumnTiles; i += 2) {
      const float(&even)[4] = out_[i];
      const float(&odd)[4] = out_[i + 1];
      const float2 mine =
          is_odd ? make_float2(odd[2 * half], odd[2 * half + 1]) : make_float2(even[2 * half], even[2 * half + 1]);
      float2 other = is_odd ? make_float2(even[2 * half], even[2 * half + 1]) : make_float2(odd[2 * half], odd[2 * half + 1]);
      other = {__shfl_xor_sync(~0u, other.x, 1), __shfl_xor_sync(~0u, other.y, 1)};
      const float4 four =
          is_odd ? make_float4(other.x, other.y, mine.x, mine.y) : make_float4(mine.x, mine.y, other.x, other.y);
      const int column = (is_odd ? i + 1 : i) * 8 + (lane_ & 2) * 2;
      if (!is_written || column >= p_.head_dim) continue;
      if (is_direct)
        store_output<typename Tile::Element>(p_, index * p_.head_dim + column, finished_output(four, factor));
      else
        *reinterpret_cast<float4*>(p_.part_o + index * p_.head_dim + column) = four;
    }
    if (is_written && !is_direct && (lane_ & 3) == 0) {
      p_.part_m[index] = max_[half];
      p_.part_l[index] = sum_[half];
    }
  }

  using Base::group_;
  using Base::hull_hi_, Base::hull_lo_, Base::inner_hi_, Base::inner_lo_;
  using Base::is_warmup_, Base::lane_, Base::warp_, Base::n_rows_, Base::task_;
  using Base::max_, Base::out_, Base::sum_;
  using Base::p_, Base::shared_, Base::ring_, Base::plan_;
  using Base::row_group_, Base::row_shift_, Base::token_group_, Base::token_groups_;

  // The state of the item's chunks before this one.
  float state_max_[2], state_sum_[2];
  float4 kept_[Tile::kKeptTiles > 0 ? Tile::kKeptTiles : 1];
};

}  // namespace baton::cuda
