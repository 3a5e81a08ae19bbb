/// The consumer warpgroups of the wide attention kernel: matmuls, the running softmax, and the results of a tile.
#pragma once

#include "kernels/cuda/attention/e4m3.cuh"
#include "kernels/cuda/attention/step.cuh"
#include "kernels/cuda/attention/wide/tile.cuh"
#include "kernels/cuda/device/wgmma_shared.cuh"

#ifdef BATON_SM90A

namespace baton::cuda {

constexpr int kTurnBarrier = 3;  ///< and the one after it: warpgroup i waits for its turn at kTurnBarrier + i
constexpr int kRowsBarrier = 5;  ///< and the one after it: of a warpgroup alone

/// 64 rows of a tile. The scores of a stage are begun before the softmax of the stage before, so that a softmax runs
/// beside matmuls of its own warpgroup; the warpgroups begin their matmuls in turns, so that it runs beside those of the
/// other one too (FlashAttention-3, arXiv:2407.08608).
template <class Tile>
class WideConsumer {
  static_assert(Tile::kWarpgroups == 2);

 public:
  __device__ WideConsumer(const AttentionParams& p, const WideMemory<Tile>& memory)
      : p_(p),
        memory_(memory),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warpgroup_(static_cast<int>(threadIdx.x) / 128),
        warp_row_(warpgroup_ * 64 + static_cast<int>(threadIdx.x) % 128 / 32 * 16),
        group_(p.n_heads / p.n_kv_heads) {}

  __device__ void run() {
    run_tiles([this] {
      const TileBounds<Tile> bounds = begin_tile();
      if (bounds.hull_hi > bounds.hull_lo) run_stages(bounds);
      forget_blind_rows();
      add_lanes();
      write_tile();
    });
  }

 protected:
  using T = typename Tile::Element;
  using Operand = typename Tile::Operand;
  static constexpr int kColumnTiles = Tile::kDim / 8;
  static constexpr int kTokens = Tile::kStageTokens;
  static constexpr int kTokenTiles = kTokens / 8;

  /// Calls `run_tile` for each tile until there is no more work.
  template <class RunTile>
  __device__ __forceinline__ void run_tiles(const RunTile& run_tile) {
    if (warpgroup_ == 1) pass_turn();
    while (true) {
      barrier_wait(memory_.task_full + 8 * tasks_.stage, tasks_.parity);
      wgmma_see_copies();
      task_ = memory_.tasks[tasks_.stage];
      if (task_.n_token_rows == 0) return;
      run_tile();
      tasks_.advance(Tile::kTasks);
    }
  }

  /// Reads the tile's bounds and empties the state.
  __device__ __forceinline__ TileBounds<Tile> begin_tile() {
    const TokenRow* rows = memory_.rows + tasks_.stage * Tile::kRows;
    const TileBounds<Tile> bounds(rows, task_.n_token_rows, task_.kv_begin, task_.kv_end, lane_);
    n_rows_ = task_.n_token_rows * group_;
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // rows after the tile's last row use the bounds of the last row
      const TokenRow& row = rows[min(warp_row_ + half * 8 + lane_ / 4, n_rows_ - 1) / group_];
      row_bounds_[half] = {max(task_.kv_begin, row.kv_lo), min(task_.kv_end, row.kv_hi)};
      if constexpr (Tile::kIsFp8)
        factors_.factors[half] = memory_.factors[tasks_.stage * Tile::kRows + warp_row_ + half * 8 + lane_ / 4];
    }
    max_[0] = max_[1] = -INFINITY;
    sum_[0] = sum_[1] = 0;
    empty_outputs();
    return bounds;
  }
  __device__ __forceinline__ void empty_outputs() {
#pragma unroll
    for (int i = 0; i < kColumnTiles; ++i) out_[i][0] = out_[i][1] = out_[i][2] = out_[i][3] = 0;
  }

  /// Stages from the last to the first. The last one is always masked: it holds the tile's last position.
  __device__ __forceinline__ void run_stages(const TileBounds<Tile>& bounds) {
    const int begin = bounds.begin();
    int position = bounds.last();
    first_step(position);
    position -= kTokens;
    // The soft-cap is part of the masked step only, so that the other one stays short.
    const auto is_masked = [&] { return position < bounds.inner_lo || position + kTokens > bounds.inner_hi || p_.has_softcap; };
    while (position >= begin) {
#pragma unroll 1
      for (; position >= begin && is_masked(); position -= kTokens) step<true>(position);
#pragma unroll 1
      for (; position >= begin && !is_masked(); position -= kTokens) step<false>(position);
    }
    last_step();
  }

  __device__ __forceinline__ void last_step() {
    own_accumulators(out_);
    begin_output();
    wgmma_wait<0>();
    own_accumulators(out_);
    release_stage(memory_.stages.value_empty, values_);
  }

  __device__ __forceinline__ void first_step(int position) {
    float scores[kTokenTiles][4];
    float factor[2];
    begin_scores(scores);
    pass_turn();
    wgmma_wait<0>();
    own_accumulators(scores);
    release_stage(memory_.stages.key_empty, keys_);
    mask(scores, position);
    weigh(scores, factor);
    pack_weights(scores);
  }

  /// The scores of the stage at `position`, and the outputs of the stage before it with the weights found there.
  template <bool kMasked>
  __device__ __forceinline__ void step(int position) {
    float scores[kTokenTiles][4];
    float factor[2];
    begin_scores(scores);
    begin_output();
    pass_turn();
    wgmma_wait<1>();
    own_accumulators(scores);
    release_stage(memory_.stages.key_empty, keys_);
    if constexpr (kMasked) mask(scores, position);
    weigh(scores, factor);
    wgmma_wait<0>();
    own_accumulators(out_);
    release_stage(memory_.stages.value_empty, values_);
#pragma unroll
    for (int i = 0; i < kColumnTiles; ++i) {
      out_[i][0] *= factor[0];
      out_[i][1] *= factor[0];
      out_[i][2] *= factor[1];
      out_[i][3] *= factor[1];
    }
    pack_weights(scores);
  }

  __device__ __forceinline__ void wait_for_turn() const { named_barrier(kTurnBarrier + warpgroup_, 256); }
  __device__ __forceinline__ void pass_turn() const {
    asm volatile("bar.arrive %0, %1;" ::"r"(kTurnBarrier + 1 - warpgroup_), "r"(256) : "memory");
  }
  __device__ __forceinline__ void release(std::uint32_t barrier) const {
    __syncwarp();
    if (lane_ == 0) barrier_arrive(barrier);
  }
  __device__ __forceinline__ void release_stage(std::uint32_t barriers, RingPosition& ring) {
    release(barriers + 8 * ring.stage);
    ring.advance(Tile::kStages);
  }

  __device__ __forceinline__ void begin_scores(float (&scores)[kTokenTiles][4]) {
    barrier_wait(memory_.stages.key_full + 8 * keys_.stage, keys_.parity);
    wait_for_turn();
    own_accumulators(scores);
    const std::uint32_t q = memory_.queries + tasks_.stage * Tile::kQueryBytes + warpgroup_ * 64 * Tile::kRowBytes;
    const std::uint32_t k = memory_.stages.keys + keys_.stage * Tile::kPartBytes;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Tile::kDim / 16; ++i)
      wgmma_shared<Operand>(scores, wgmma_descriptor(q + i / 4 * Tile::kPanelBytes + i % 4 * 32, 16, 1024),
                            wgmma_descriptor(k + i / 4 * 128 * kTokens + i % 4 * 32, 16, 1024), i > 0);
    wgmma_commit();
  }
  __device__ __forceinline__ void begin_output() {
    barrier_wait(memory_.stages.value_full + 8 * values_.stage, values_.parity);
    const std::uint32_t v = memory_.stages.values + values_.stage * Tile::kPartBytes;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kTokens / 16; ++i)
      wgmma_transposed<Operand>(out_, weights_[i], wgmma_descriptor(v + i * 16 * 128, 128 * kTokens, 1024));
    wgmma_commit();
  }

  /// The soft-cap and the bounds of rows.
  __device__ __forceinline__ void mask(float (&scores)[kTokenTiles][4], int position) const {
    if (p_.has_softcap) {  // tanh of scaled scores, as 1 - 2 / (1 + e^2x)
      const float twice_log2 = 2 * 1.44269504f * p_.score_scale;
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          scores[i][j] = 1 - __fdividef(2.0f, 1 + exp2_approx(scores[i][j] * (twice_log2 * factors_.of(j / 2))));
    }
    const int first = position + (lane_ & 3) * 2;
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = first + i * 8 + j % 2;
        if (at < row_bounds_[j / 2].x || at >= row_bounds_[j / 2].y) scores[i][j] = -INFINITY;
      }
  }

  /// Turns scores into weights exp2(score - maximum) and updates the running maximum and sum; the outputs so far must be
  /// multiplied by `factor`.
  __device__ __forceinline__ void weigh(float (&scores)[kTokenTiles][4], float (&factor)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float score_log2 = p_.has_softcap ? p_.score_log2 : p_.score_log2 * factors_.of(half);
      float m = scores[0][2 * half];
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i) m = fmaxf(m, fmaxf(scores[i][2 * half], scores[i][2 * half + 1]));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      const float new_max = fmaxf(max_[half], m * score_log2);
      const float base = new_max == -INFINITY ? 0.0f : new_max;
      factor[half] = exp2_approx(max_[half] - base);
      max_[half] = new_max;
      float l = 0;
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i)
#pragma unroll
        for (int j = 2 * half; j < 2 * half + 2; ++j) {
          scores[i][j] = exp2_approx(fmaf(scores[i][j], score_log2, -base));
          l += scores[i][j];
        }
      sum_[half] = sum_[half] * factor[half] + l;
    }
  }
  __device__ __forceinline__ void pack_weights(const float (&scores)[kTokenTiles][4]) {
#pragma unroll
    for (int i = 0; i < kTokens / 16; ++i) {
      weights_[i][0] = pack_pair<Operand>(scores[2 * i][0], scores[2 * i][1]);
      weights_[i][1] = pack_pair<Operand>(scores[2 * i][2], scores[2 * i][3]);
      weights_[i][2] = pack_pair<Operand>(scores[2 * i + 1][0], scores[2 * i + 1][1]);
      weights_[i][3] = pack_pair<Operand>(scores[2 * i + 1][2], scores[2 * i + 1][3]);
    }
  }

  /// Empties the states of rows that see no key: they took part wherever no mask was applied.
  __device__ __forceinline__ void forget_blind_rows() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row_bounds_[half].x < row_bounds_[half].y) continue;
      max_[half] = -INFINITY;
      sum_[half] = 0;
#pragma unroll
      for (int i = 0; i < kColumnTiles; ++i) out_[i][2 * half] = out_[i][2 * half + 1] = 0;
    }
  }

  /// Each thread has added the weights of its own columns of scores.
  __device__ __forceinline__ void add_lanes() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum_[half] += __shfl_xor_sync(~0u, sum_[half], 1);
      sum_[half] += __shfl_xor_sync(~0u, sum_[half], 2);
    }
  }

  __device__ __forceinline__ void write_tile() {
    if (task_.is_direct != 0) finish_sums();
    if (task_.is_direct == 0)
      write_states();
    else if (p_.out_is_f32)
      write_floats();
    else
      write_outputs();
    release(memory_.task_empty + 8 * tasks_.stage);
  }
  __device__ __forceinline__ void finish_sums() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row_ + half * 8 + lane_ / 4;
      sum_[half] = finished_sum(p_, sink_of(p_, task_.kv_head * group_ + row % group_), max_[half], sum_[half]);
    }
  }
  /// The index of a tile's row among rows of all heads, if its first token row is `first_row`.
  __device__ __forceinline__ std::int64_t index_of(int tile_row, int first_row) const {
    const int token = tile_row / group_;
    return static_cast<std::int64_t>(first_row + token) * p_.n_heads + task_.kv_head * group_ + tile_row - token * group_;
  }
  __device__ __forceinline__ void write_row(float* to, int half, float factor) const {
#pragma unroll
    for (int i = 0; i < kColumnTiles; ++i)
      *reinterpret_cast<float2*>(to + i * 8 + (lane_ & 3) * 2) = {out_[i][2 * half] * factor, out_[i][2 * half + 1] * factor};
  }
  __device__ __forceinline__ void write_states() const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row_ + half * 8 + lane_ / 4;
      if (row >= n_rows_) continue;
      const std::int64_t index = index_of(row, task_.first_partial);
      write_row(p_.part_o + index * Tile::kDim, half, value_scale());
      if ((lane_ & 3) == 0) {
        p_.part_m[index] = max_[half];
        p_.part_l[index] = sum_[half];
      }
    }
  }
  /// By chunks, the outputs of each chunk have been multiplied.
  __device__ __forceinline__ float value_scale() const { return Tile::kIsFp8 && !Tile::kByChunks ? p_.v_scale : 1.0f; }
  __device__ __forceinline__ float inverse_sum(int half) const { return sum_[half] != 0 ? value_scale() / sum_[half] : 0.0f; }
  __device__ __forceinline__ void write_floats() const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row_ + half * 8 + lane_ / 4;
      if (row < n_rows_)
        write_row(reinterpret_cast<float*>(p_.out) + index_of(row, task_.first_row) * Tile::kDim, half, inverse_sum(half));
    }
  }
  /// The memory of the queries, no longer needed, turns 16-bit outputs into whole rows.
  __device__ __forceinline__ void write_outputs() const {
    named_barrier(kRowsBarrier + warpgroup_, 128);
    const std::uint32_t rows =
        memory_.queries + tasks_.stage * Tile::kQueryBytes + warpgroup_ * 64 * Tile::kRowBytes + warp_row_ % 64 * 128;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float factor = inverse_sum(half);
      const int row = half * 8 + lane_ / 4;
#pragma unroll
      for (int i = 0; i < kColumnTiles; ++i)
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(chunk_address(rows, row, i) + (lane_ & 3) * 4),
                     "r"(pack_pair<T>(out_[i][2 * half] * factor, out_[i][2 * half + 1] * factor))
                     : "memory");
    }
    __syncwarp();
    constexpr int kRowsAtATime = 32 / kColumnTiles;
#pragma unroll
    for (int i = 0; i < 16 / kRowsAtATime; ++i) {
      const int row = i * kRowsAtATime + lane_ / kColumnTiles;
      const int chunk = lane_ % kColumnTiles;
      const uint4 x = load_shared(chunk_address(rows, row, chunk));
      if (warp_row_ + row < n_rows_)
        *reinterpret_cast<uint4*>(p_.out + index_of(warp_row_ + row, task_.first_row) * Tile::kRowBytes + chunk * 16) = x;
    }
  }
  __device__ __forceinline__ static std::uint32_t chunk_address(std::uint32_t rows, int row, int chunk) {
    return rows + chunk / 8 * Tile::kPanelBytes + row * 128 + ((chunk & 7) ^ (row & 7)) * 16;
  }

  const AttentionParams& p_;
  const WideMemory<Tile>& memory_;
  int lane_;
  int warpgroup_;
  int warp_row_;  ///< of the tile, the first of this warp's 16
  int group_;
  TileTask task_;
  int n_rows_ = 0;
  int2 row_bounds_[2];
  [[no_unique_address]] RowFactors<Tile::kIsFp8> factors_;
  RingPosition tasks_, keys_, values_;
  float out_[kColumnTiles][4];
  std::uint32_t weights_[kTokens / 16][4];
  float max_[2], sum_[2];
};

}  // namespace baton::cuda

#endif  // BATON_SM90A
