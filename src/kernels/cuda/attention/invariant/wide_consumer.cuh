/// The consumer warpgroups of the wide kernel in batch-invariant mode: the sums of InvariantConsumer
/// (attention/invariant/consumer.cuh), in its order, in the pipeline of WideConsumer.
#pragma once

#include "kernels/attention_costs.h"
#include "kernels/cuda/attention/invariant/fold.cuh"
#include "kernels/cuda/attention/wide/consumer.cuh"

#ifdef BATON_SM90A

namespace baton::cuda {

/// Stages of 64 tokens from the first to the last. Each chunk has a state of its own, which is folded into the state of
/// the chunks before it while the scores of the next chunk are ready and its matmuls with values have not begun. Chunks
/// and stages that no row of the tile sees are left out: an empty state changes no bit, and neither do weights of 0.
template <class Tile>
class WideInvariantConsumer : public WideConsumer<Tile> {
  using Base = WideConsumer<Tile>;
  using Base::kColumnTiles, Base::kTokens, Base::kTokenTiles;
  static constexpr int kSharedTiles = kColumnTiles - Tile::kKeptTiles;
  static constexpr int kConsumerThreads = 32 * Tile::kConsumerWarps;
  static_assert(kAttentionChunk % kTokens == 0 && Tile::kByChunks);

 public:
  using Base::Base;

  __device__ void run() {
    this->run_tiles([this] {
      const TileBounds<Tile> bounds = this->begin_tile();
      if (bounds.hull_hi > bounds.hull_lo) run_stages(bounds);
      this->forget_blind_rows();
      this->write_tile();
    });
  }

 private:
  __device__ __forceinline__ void run_stages(const TileBounds<Tile>& bounds) {
    const int last = bounds.last();
    int position = bounds.begin();
    has_state_ = false;
    this->first_step(position);
    position += kTokens;
    const auto is_masked = [&] { return position < bounds.inner_lo || position + kTokens > bounds.inner_hi || p_.has_softcap; };
    const auto is_inside = [&] { return position <= last && position % kAttentionChunk != 0; };
    while (position <= last) {
#pragma unroll 1
      for (; is_inside() && is_masked(); position += kTokens) this->template step<true>(position);
#pragma unroll 1
      for (; is_inside() && !is_masked(); position += kTokens) this->template step<false>(position);
      if (position <= last && position % kAttentionChunk == 0) {
        begin_chunk(position);
        position += kTokens;
      }
    }
    this->last_step();
    this->add_lanes();
    scale_values<Tile>(out_, p_.v_scale);
    if (has_state_) fold(max_, sum_);
  }

  /// The first stage of a chunk, at `position`, and the end of the chunk before it.
  __device__ __forceinline__ void begin_chunk(int position) {
    float scores[kTokenTiles][4];
    float factor[2];
    this->begin_scores(scores);
    this->begin_output();
    this->pass_turn();
    this->add_lanes();
    float chunk_max[2] = {max_[0], max_[1]};
    float chunk_sum[2] = {sum_[0], sum_[1]};
    max_[0] = max_[1] = -INFINITY;
    sum_[0] = sum_[1] = 0;
    wgmma_wait<1>();
    own_accumulators(scores);
    this->release_stage(memory_.stages.key_empty, keys_);
    this->mask(scores, position);
    this->weigh(scores, factor);
    wgmma_wait<0>();
    own_accumulators(out_);
    this->release_stage(memory_.stages.value_empty, values_);
    this->pack_weights(scores);
    scale_values<Tile>(out_, p_.v_scale);
    if (has_state_) fold(chunk_max, chunk_sum);
    keep(chunk_max, chunk_sum);
    this->empty_outputs();
  }

  /// Folds the chunk's state into the one of the chunks before it. The result stands in place of the chunk's.
  __device__ __forceinline__ void fold(float (&chunk_max)[2], float (&chunk_sum)[2]) {
    const StateFold folds[2] = {{state_max_[0], chunk_max[0]}, {state_max_[1], chunk_max[1]}};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      chunk_max[half] = folds[half].max();
      chunk_sum[half] = folds[half](state_sum_[half], chunk_sum[half]);
    }
#pragma unroll
    for (int i = 0; i < kColumnTiles; ++i) {
      const float4 state = i < kSharedTiles ? shared_state(i) : kept_[i < kSharedTiles ? 0 : i - kSharedTiles];
      out_[i][0] = folds[0](state.x, out_[i][0]);
      out_[i][1] = folds[0](state.y, out_[i][1]);
      out_[i][2] = folds[1](state.z, out_[i][2]);
      out_[i][3] = folds[1](state.w, out_[i][3]);
    }
  }
  __device__ __forceinline__ void keep(const float (&chunk_max)[2], const float (&chunk_sum)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      state_max_[half] = chunk_max[half];
      state_sum_[half] = chunk_sum[half];
    }
#pragma unroll
    for (int i = 0; i < kColumnTiles; ++i) {
      const float4 state = {out_[i][0], out_[i][1], out_[i][2], out_[i][3]};
      if (i < kSharedTiles)
        shared_state(i) = state;
      else
        kept_[i - kSharedTiles] = state;
    }
    has_state_ = true;
  }
  __device__ __forceinline__ float4& shared_state(int i) const {
    return memory_.states[i * kConsumerThreads + static_cast<int>(threadIdx.x)];
  }

  using Base::keys_, Base::values_;
  using Base::max_, Base::out_, Base::sum_;
  using Base::p_, Base::memory_;

  // The state of the tile's chunks before this one.
  bool has_state_ = false;
  float state_max_[2], state_sum_[2];
  float4 kept_[Tile::kKeptTiles];
};

}  // namespace baton::cuda

#endif  // BATON_SM90A
