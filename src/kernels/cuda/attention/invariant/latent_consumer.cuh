/// The consumer warpgroups of the latent attention kernel in batch-invariant mode: a state of its own for every chunk.
#pragma once

#include "kernels/attention_costs.h"
#include "kernels/cuda/attention/invariant/fold.cuh"
#include "kernels/cuda/attention/latent/consumer.cuh"

#ifdef BATON_SM90A

namespace baton::cuda {

/// Stages of 64 tokens from the first to the last, in the order of LatentConsumer. At the end of a chunk its state is folded
/// into that of the tile's chunks before it, which waits in device memory: registers have room for one state. Chunks and stages
/// that no row of the tile sees are left out: an empty state changes no bit, and neither do weights of 0.
template <class Tile>
class LatentInvariantConsumer : public LatentConsumer<Tile> {
  using Base = LatentConsumer<Tile>;
  using Base::kColumnTiles;
  static_assert(kAttentionChunk % Tile::kStageTokens == 0);

 public:
  /// `states`: memory for the outputs of one tile for each block.
  __device__ LatentInvariantConsumer(const AttentionParams& p, const LatentMemory<Tile>& memory, float4* states)
      : Base(p, memory),
        outputs_(states + static_cast<std::int64_t>(blockIdx.x) * kColumnTiles * Tile::kConsumerThreads + threadIdx.x) {}

  __device__ void run() {
    this->run_tiles([this] {
      const TileBounds<Tile> bounds = this->begin_tile();
      const int last = bounds.last();
      bool has_chunks = false;  // before this one
#pragma unroll 1
      for (int position = bounds.begin(); position <= last; position += Tile::kStageTokens) {
        this->run_stage(bounds, position, last);
        const int next = position + Tile::kStageTokens;
        if (next <= last && next % kAttentionChunk != 0) continue;
        this->add_sums();
        if (has_chunks) fold();
        has_chunks = true;
        if (next <= last) keep();
      }
      this->forget_blind_rows();
      this->write_tile();
    });
  }

 private:
  /// Folds the chunk's state into that of the chunks before it. The result stands in place of the chunk's.
  __device__ __forceinline__ void fold() {
    const StateFold folds[2] = {{chunks_max_[0], max_[0]}, {chunks_max_[1], max_[1]}};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      max_[half] = folds[half].max();
      sum_[half] = folds[half](chunks_sum_[half], sum_[half]);
    }
#pragma unroll
    for (int i = 0; i < kColumnTiles; ++i) {
      const float4 chunks = __ldcg(outputs_ + i * Tile::kConsumerThreads);
      out_[i][0] = folds[0](chunks.x, out_[i][0]);
      out_[i][1] = folds[0](chunks.y, out_[i][1]);
      out_[i][2] = folds[1](chunks.z, out_[i][2]);
      out_[i][3] = folds[1](chunks.w, out_[i][3]);
    }
  }
  __device__ __forceinline__ void keep() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      chunks_max_[half] = max_[half];
      chunks_sum_[half] = sum_[half];
    }
#pragma unroll
    for (int i = 0; i < kColumnTiles; ++i)
      __stcg(outputs_ + i * Tile::kConsumerThreads, make_float4(out_[i][0], out_[i][1], out_[i][2], out_[i][3]));
    this->empty_state();
  }

  using Base::max_, Base::out_, Base::sum_;

  // The state of the tile's chunks before this one; the outputs are every kConsumerThreads-th.
  float4* outputs_;
  float chunks_max_[2], chunks_sum_[2];
};

}  // namespace baton::cuda

#endif  // BATON_SM90A
