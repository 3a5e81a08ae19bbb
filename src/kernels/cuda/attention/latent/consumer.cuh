/// The consumer warpgroups of the latent attention kernel: scores, the running softmax, and the results of a tile.
#pragma once

#include "kernels/cuda/attention/latent/tile.cuh"
#include "kernels/cuda/attention/step.cuh"
#include "kernels/cuda/device/wgmma_shared.cuh"
#include "kernels/cuda/device/wgmma_wide.cuh"

#ifdef BATON_SM90A

namespace baton::cuda {

/// One of the two warpgroups. They exchange the maxima of their scores, and their weights: these take the place of the stage's
/// rotated elements, which only scores need.
template <class Tile>
class LatentConsumer {
 public:
  __device__ LatentConsumer(const AttentionParams& p, const LatentMemory<Tile>& memory)
      : p_(p),
        memory_(memory),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warpgroup_(static_cast<int>(threadIdx.x) / 128),
        row_(static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane_ / 4) {}

  __device__ void run() {
    run_tiles([this] {
      const TileBounds<Tile> bounds = begin_tile();
      const int last = bounds.last();
#pragma unroll 1
      for (int position = bounds.begin(); position <= last; position += Tile::kStageTokens) run_stage(bounds, position, last);
      if (bounds.begin() <= last) add_sums();
      forget_blind_rows();
      write_tile();
    });
  }

 protected:
  using T = typename Tile::Element;
  static constexpr int kTokens = Tile::kStageTokens / 2;  ///< whose scores this warpgroup computes
  static constexpr int kTokenTiles = kTokens / 8;
  static constexpr int kColumnTiles = Tile::kColumns / 8;

  /// Calls run_tile() for each tile.
  template <class RunTile>
  __device__ __forceinline__ void run_tiles(const RunTile& run_tile) {
    while (true) {
      barrier_wait(memory_.task_full, task_parity_);
      wgmma_see_copies();
      task_ = *memory_.task;
      if (task_.n_tile_rows == 0) return;
      run_tile();
      task_parity_ ^= 1;
    }
  }

  /// Empties the state, and gives up the queries if no row sees a key.
  __device__ __forceinline__ TileBounds<Tile> begin_tile() {
    const TokenRows rows(task_.first, task_.n_tile_rows, p_.n_heads);
    const TokenRow* const first_row = p_.rows + task_.first_row;
    const TileBounds<Tile> bounds(first_row + rows.first, rows.n, task_.kv_begin, task_.kv_end, lane_);
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // rows after the tile's last row use the bounds of the last row
      const int pair = task_.first + min(row_ + half * 8, task_.n_tile_rows - 1);
      const TokenRow& row = first_row[pair / p_.n_heads];
      row_bounds_[half] = {max(task_.kv_begin, row.kv_lo), min(task_.kv_end, row.kv_hi)};
    }
    empty_state();
    if (bounds.last() < bounds.begin()) release(memory_.task_empty);
    return bounds;
  }
  __device__ __forceinline__ void empty_state() {
    max_[0] = max_[1] = -INFINITY;
    sum_[0] = sum_[1] = 0;
#pragma unroll
    for (int i = 0; i < kColumnTiles; ++i) out_[i][0] = out_[i][1] = out_[i][2] = out_[i][3] = 0;
  }

  /// The stage at `first`. The tile's queries are not needed after its last one.
  __device__ __forceinline__ void run_stage(const TileBounds<Tile>& bounds, int first, int last) {
    const int position = first + warpgroup_ * kTokens;
    const bool is_masked = position < bounds.inner_lo || position + kTokens > bounds.inner_hi;
    const bool is_last = first + Tile::kStageTokens > last;
    const std::uint32_t keys = memory_.stages + ring_.stage * Tile::kStageBytes;
    const std::uint32_t weights = keys + (Tile::kPanels - 1) * Tile::kPanelBytes;
    const std::uint32_t full = memory_.full + 8 * Tile::kParts * ring_.stage;
    float scores[kTokenTiles][4];
    float factor[2];
    own_accumulators(scores);
#pragma unroll
    for (int part = 0; part < Tile::kParts; ++part) {
      constexpr int kSteps = Tile::kPartPanels * 4;
      barrier_wait(full + 8 * part, ring_.parity);
      wgmma_fence();
#pragma unroll
      for (int i = part * kSteps; i < (part + 1) * kSteps; ++i) {
        const int at = i / 4 * Tile::kPanelBytes + i % 4 * 32;
        wgmma_shared<T>(scores, wgmma_descriptor(memory_.queries + at, 16, 1024),
                        wgmma_descriptor(keys + at + warpgroup_ * kTokens * 128, 16, 1024), i > 0);
      }
      wgmma_commit();
    }
    wgmma_wait<0>();
    own_accumulators(scores);
    if (is_last) release(memory_.task_empty);
    if (is_masked) mask(scores, position);
    find_maxima(scores, factor);
    weigh(scores);
    write_weights(weights, scores);
    wgmma_see_copies();
    // A factor of 1 in all rows of a warp, the usual one after some stages, changes nothing.
    if (__any_sync(~0u, factor[0] != 1 || factor[1] != 1)) {
#pragma unroll
      for (int i = 0; i < kColumnTiles; ++i) {
        out_[i][0] *= factor[0];
        out_[i][1] *= factor[0];
        out_[i][2] *= factor[1];
        out_[i][3] *= factor[1];
      }
    }
    meet();
    own_accumulators(out_);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Tile::kStageTokens / 16; ++i)
      wgmma_wide_transposed<T>(out_, wgmma_descriptor(weights + i * 32, 16, 1024),
                               wgmma_descriptor(keys + warpgroup_ * (Tile::kColumns / 64) * Tile::kPanelBytes + i * 16 * 128,
                                                Tile::kPanelBytes, 1024));
    wgmma_commit();
    wgmma_wait<0>();
    own_accumulators(out_);
    release(memory_.empty + 8 * ring_.stage);
    ring_.advance(Tile::kStages);
  }

  __device__ __forceinline__ void meet() const { named_barrier(kConsumerBarrier, Tile::kConsumerThreads); }
  __device__ __forceinline__ void release(std::uint32_t barrier) const {
    __syncwarp();
    if (lane_ == 0) barrier_arrive(barrier);
  }

  __device__ __forceinline__ void mask(float (&scores)[kTokenTiles][4], int position) const {
    const int first = position + (lane_ & 3) * 2;
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = first + i * 8 + j % 2;
        if (at < row_bounds_[j / 2].x || at >= row_bounds_[j / 2].y) scores[i][j] = -INFINITY;
      }
  }

  /// Updates the running maxima by the scores of both warpgroups. The outputs so far must be multiplied by `factor`.
  __device__ __forceinline__ void find_maxima(const float (&scores)[kTokenTiles][4], float (&factor)[2]) {
    float m[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      m[half] = scores[0][2 * half];
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i) m[half] = fmaxf(m[half], fmaxf(scores[i][2 * half], scores[i][2 * half + 1]));
      m[half] = fmaxf(m[half], __shfl_xor_sync(~0u, m[half], 1));
      m[half] = fmaxf(m[half], __shfl_xor_sync(~0u, m[half], 2));
      if ((lane_ & 3) == 0) memory_.maxima[warpgroup_ * Tile::kRows + row_ + half * 8] = m[half];
    }
    meet();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      m[half] = fmaxf(m[half], memory_.maxima[(1 - warpgroup_) * Tile::kRows + row_ + half * 8]);
      const float new_max = fmaxf(max_[half], m[half] * p_.score_log2);
      factor[half] = exp2_approx(max_[half] - (new_max == -INFINITY ? 0.0f : new_max));
      max_[half] = new_max;
      sum_[half] *= factor[half];
    }
  }

  /// Turns scores into weights exp2(score - maximum) and adds them up.
  __device__ __forceinline__ void weigh(float (&scores)[kTokenTiles][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float base = max_[half] == -INFINITY ? 0.0f : max_[half];
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i)
#pragma unroll
        for (int j = 2 * half; j < 2 * half + 2; ++j) {
          scores[i][j] = exp2_approx(fmaf(scores[i][j], p_.score_log2, -base));
          sum_[half] += scores[i][j];
        }
    }
  }

  /// Writes the weights as wgmma's operand A, with 128-byte swizzle. Both warpgroups have used what they overwrite.
  __device__ __forceinline__ void write_weights(std::uint32_t weights, const float (&scores)[kTokenTiles][4]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_ + half * 8;
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i) {
        const int chunk = warpgroup_ * kTokenTiles + i;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(weights + row * 128 + (chunk ^ (row & 7)) * 16 + (lane_ & 3) * 4),
                     "r"(pack_pair<T>(scores[i][2 * half], scores[i][2 * half + 1]))
                     : "memory");
      }
    }
  }

  /// Each thread has added the weights of its own columns of scores, and each warpgroup those of its tokens.
  __device__ __forceinline__ void add_sums() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum_[half] += __shfl_xor_sync(~0u, sum_[half], 1);
      sum_[half] += __shfl_xor_sync(~0u, sum_[half], 2);
      if ((lane_ & 3) == 0) memory_.sums[warpgroup_ * Tile::kRows + row_ + half * 8] = sum_[half];
    }
    meet();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_ + half * 8;
      sum_[half] = memory_.sums[row] + memory_.sums[Tile::kRows + row];
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

  __device__ __forceinline__ void write_tile() const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_ + half * 8;
      const bool is_written = row < task_.n_tile_rows;
      const int pair = task_.first + row;
      if (task_.is_direct == 0) {
        const std::int64_t index = static_cast<std::int64_t>(task_.first_partial) * p_.n_heads + pair;
        if (is_written) write_state(index, half);
        continue;
      }
      const std::int64_t index = static_cast<std::int64_t>(task_.first_row) * p_.n_heads + pair;
      const float l = finished_sum(p_, sink_of(p_, pair % p_.n_heads), max_[half], sum_[half]);
      write_output(index, half, l != 0 ? 1 / l : 0.0f, is_written);
    }
  }
  __device__ __forceinline__ void write_state(std::int64_t index, int half) const {
    float* const to = p_.part_o + index * Tile::kLatent + warpgroup_ * Tile::kColumns + (lane_ & 3) * 2;
#pragma unroll
    for (int i = 0; i < kColumnTiles; ++i) *reinterpret_cast<float2*>(to + i * 8) = {out_[i][2 * half], out_[i][2 * half + 1]};
    if (warpgroup_ == 0 && (lane_ & 3) == 0) {
      p_.part_m[index] = max_[half];
      p_.part_l[index] = sum_[half];
    }
  }
  /// Neighbouring lanes exchange pairs of columns, so that each writes four columns of every second column tile.
  __device__ __forceinline__ void write_output(std::int64_t index, int half, float factor, bool is_written) const {
    const bool is_odd = (lane_ & 1) != 0;
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
      const int column = warpgroup_ * Tile::kColumns + (is_odd ? i + 1 : i) * 8 + (lane_ & 2) * 2;
      if (is_written)
        store_output<T>(p_, index * Tile::kLatent + column,
                        {four.x * factor, four.y * factor, four.z * factor, four.w * factor});
    }
  }

  const AttentionParams& p_;
  const LatentMemory<Tile>& memory_;
  int lane_;
  int warpgroup_;
  int row_;  ///< of the tile; this thread's other row is 8 after it
  LatentTask task_;
  int task_parity_ = 0;
  int2 row_bounds_[2];
  RingPosition ring_;
  float out_[kColumnTiles][4];
  float max_[2], sum_[2];
};

}  // namespace baton::cuda

#endif  // BATON_SM90A
