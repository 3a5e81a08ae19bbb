/// The consumer warps of the attention kernel: matmuls, the running softmax, and the results of a tile. The kernel of
/// the batch-invariant mode builds on them (attention/invariant/consumer.cuh).
#pragma once

#include "kernels/cuda/attention/e4m3.cuh"
#include "kernels/cuda/attention/general/stage.cuh"
#include "kernels/cuda/attention/general/widen.cuh"
#include "kernels/cuda/attention/step.cuh"
#include "kernels/cuda/attention/tile.cuh"

namespace baton::cuda {

template <class Tile>
class Consumer {
  using T = typename Tile::Operand;
  static constexpr int kDim = Tile::kHeadDim;
  static constexpr int kColumnTiles = kDim / 8;  // of the output, 8 wide
  static constexpr int kKSteps = kDim / 16;

 public:
  __device__ Consumer(const AttentionParams& p, const SharedLayout<Tile>& shared, const MemoryPlan& plan)
      : p_(p), shared_(shared), plan_(plan), thread_(static_cast<int>(threadIdx.x)), lane_(thread_ % 32), warp_(thread_ / 32) {}

  __device__ void run() {
    run_tiles([this] {
      if (is_wide<Tile>(n_rows_))
        run_tile<std::conditional_t<Tile::kWidens, typename Tile::Wide, Tile>>();
      else
        run_tile<Tile>();
    });
  }

 protected:
  /// Calls `run_tile` for a warm-up, and for each tile until there is no more work.
  template <class RunTile>
  __device__ __forceinline__ void run_tiles(const RunTile& run_tile) {
    group_ = p_.n_heads / p_.n_kv_heads;
    group_inverse_ = ((1 << 16) + group_ - 1) / group_;
    // The first round is a warm-up: it computes with whatever is in shared memory and writes nothing. It loads the instructions into
    // the cache before the first tile arrives; cold instructions would cost that tile microseconds. It must run the same code, so
    // the compiler must not know which round it is. With scratch memory over the queries there is none: it would write there.
    asm volatile("mov.u32 %0, %1;" : "=r"(is_warmup_) : "r"(has_scratch_over_queries() ? 0 : 1));
    while (true) {
      if (is_warmup_ != 0) {
        task_ = TileTask{};
        task_.n_token_rows = 1;
        task_.kv_end = 16;
      } else {
        barrier_wait(shared_.task_full, task_parity_);
        task_parity_ ^= 1;
        task_ = *shared_.task;
        if (task_.n_token_rows == 0) break;
      }
      n_rows_ = task_.n_token_rows * group_;
      run_tile();
      is_warmup_ = 0;
    }
  }

  /// Stage: Tile, or Tile::Wide where the tile's keys and values are converted.
  template <class Stage>
  __device__ __forceinline__ void run_tile() {
    row_shift_ = n_rows_ <= 16 ? 0 : n_rows_ <= 32 ? 1 : 2;
    token_groups_ = kConsumerWarps >> row_shift_;
    row_group_ = warp_ & ((1 << row_shift_) - 1);
    token_group_ = warp_ >> row_shift_;
    find_bounds();
    take_queries<Stage>();
    empty_state();
    if constexpr (Stage::kIsFp8)
      run_e4m3_stages();
    else
      run_stages<Stage>();
    if constexpr (!Tile::kQueriesInRegisters) release_queries(false);
    write_tile<Stage>();
    release_queries(true);
  }

  template <class Stage>
  __device__ __forceinline__ void take_queries() {
    if constexpr (Tile::kQueriesInRegisters) {
#pragma unroll
      for (int k = 0; k < kKSteps; ++k) load_queries<Stage>(queries_[k], k);
      if constexpr (Tile::kIsFp8) row_factors_ = queries_to_half(queries_);
      release_queries(false);
    }
  }
  /// Gives the queries' memory back to the producers when this warp has read them or, if the scratch memory lies there, when it
  /// has written its results.
  __device__ __forceinline__ void release_queries(bool has_written) {
    if (has_written ? has_scratch_over_queries() : is_warmup_ == 0 && !has_scratch_over_queries()) release(shared_.task_empty);
  }
  __device__ __forceinline__ bool has_scratch_over_queries() const {
    return Tile::kQueriesInRegisters && plan_.scratch_over_queries;
  }

  __device__ __forceinline__ void empty_state() {
    max_[0] = max_[1] = -INFINITY;
    sum_[0] = sum_[1] = 0;
#pragma unroll
    for (int i = 0; i < kColumnTiles; ++i) out_[i][0] = out_[i][1] = out_[i][2] = out_[i][3] = 0;
  }

  /// Computes positions, clipped to the item's: what this thread's two rows see; what every row of the tile sees, [inner_lo_,
  /// inner_hi_); and what some row sees, [hull_lo_, hull_hi_).
  __device__ __forceinline__ void find_bounds() {
    inner_lo_ = task_.kv_begin;
    inner_hi_ = task_.kv_end;
    hull_lo_ = task_.kv_end;
    hull_hi_ = task_.kv_begin;
    if (is_warmup_ != 0) {
      hull_lo_ = task_.kv_begin;
      hull_hi_ = task_.kv_end;
      return;
    }
#pragma unroll 1
    for (int i = lane_; i < task_.n_token_rows; i += 32) {
      const TokenRow row = shared_.rows[i];
      if (row.kv_hi > row.kv_lo) {  // a row that sees no key gets an empty state at the end and changes no bit of other rows
        inner_lo_ = max(inner_lo_, row.kv_lo);
        inner_hi_ = min(inner_hi_, row.kv_hi);
        hull_lo_ = min(hull_lo_, max(task_.kv_begin, row.kv_lo));
        hull_hi_ = max(hull_hi_, min(task_.kv_end, row.kv_hi));
      }
    }
    inner_lo_ = __reduce_max_sync(~0u, inner_lo_);
    inner_hi_ = __reduce_min_sync(~0u, inner_hi_);
    hull_lo_ = __reduce_min_sync(~0u, hull_lo_);
    hull_hi_ = __reduce_max_sync(~0u, hull_hi_);
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // rows after the tile's last row use the bounds of the last row
      const TokenRow& row = shared_.rows[by_group(min(row_group_ * 16 + half * 8 + (lane_ >> 2), n_rows_ - 1))];
      row_bounds_[half] = clipped(row);
    }
  }
  /// The positions of the item that a row sees.
  __device__ __forceinline__ int2 clipped(const TokenRow& row) const {
    return {max(task_.kv_begin, row.kv_lo), min(task_.kv_end, row.kv_hi)};
  }

  /// Operand A of k step `k`: the queries of this warp's 16 rows, zeros from head_dim on. For 8-bit keys each lane
  /// holds four neighbouring dimensions of the 16, as the bytes lie in memory.
  template <class Stage>
  __device__ __forceinline__ void load_queries(std::uint32_t (&a)[4], int k) {
    const std::byte* base = shared_.queries + row_group_ * 16 * Tile::kQueryStride;
    if constexpr (Stage::kIsFp8) {
      const std::byte* at = base + (lane_ >> 2) * Tile::kQueryStride + (k * 16 + (lane_ & 3) * 4) * 2;
      const uint2 low = *reinterpret_cast<const uint2*>(at);
      const uint2 high = *reinterpret_cast<const uint2*>(at + 8 * Tile::kQueryStride);
      a[0] = low.x, a[1] = high.x, a[2] = low.y, a[3] = high.y;
      if (k * 16 + (lane_ & 3) * 4 >= p_.head_dim) a[0] = a[1] = a[2] = a[3] = 0;
    } else {
      load_matrices(a, as_of_now(shared_address(base)) + (lane_ & 15) * Tile::kQueryStride + (k * 16 + (lane_ >> 4) * 8) * 2);
      if (k * 16 >= p_.head_dim) a[0] = a[1] = 0;
      if (k * 16 + 8 >= p_.head_dim) a[2] = a[3] = 0;
    }
  }

  __device__ __forceinline__ void release(std::uint32_t barrier) {
    __syncwarp();
    if (lane_ == 0) barrier_arrive(barrier);
  }

  /// Divides a stage into units of 16 tokens for each row group, at most the whole stage. The token groups take units in turn.
  template <class Stage>
  __device__ __forceinline__ void run_stages() {
    constexpr int kSlots = Stage::kStageBytes / Tile::kStageBytes;
    if (kSlots == 2 && ring_.stage % 2 != 0) {  // passed over
      barrier_wait(shared_.full + 8 * ring_.stage, ring_.parity);
      release(shared_.empty + 8 * ring_.stage);
      ring_.advance(plan_.n_stages);
    }
    const int unit = min(16 << row_shift_, Tile::kStageTokens);
    const int n_units = unit == 16 ? Tile::kStageTokens / 16 : unit == 32 ? Tile::kStageTokens / 32 : 1;
    int position = Tile::first_position(task_.kv_begin);
#pragma unroll 1
    for (int stage = 0; position < task_.kv_end; ++stage, position += Tile::kStageTokens) {
      if (is_warmup_ == 0) barrier_wait(shared_.full + 8 * ring_.stage, ring_.parity);
      const int mine = (token_group_ - stage * n_units) & (token_groups_ - 1);
      if (mine < n_units) {
        const std::uint32_t part = as_of_now(shared_.stages + ring_.stage * Tile::kStageBytes);
        bool done = false;
#ifdef BATON_SM90A
        if constexpr (Stage::kWgmma) {
          if (unit == 64 && position >= inner_lo_ && position + 64 <= inner_hi_) {
            step_of_warpgroup<Stage>(part);
            done = true;
          }
        }
#endif
        if (!done) {
          if (kSlots == 2 && is_warmup_ == 0) barrier_wait(shared_.full + 8 * (ring_.stage + 1), ring_.parity);
#pragma unroll 1
          for (int token = mine * unit; token < (mine + 1) * unit; token += 16)
            if (position + token < hull_hi_ && position + token + 16 > hull_lo_) step<Stage>({{part, token, position + token}});
          if (kSlots == 2 && is_warmup_ == 0) {
            own_accumulators(out_);
            leave_keys();
          }
        }
      }
      if (is_warmup_ != 0) return;
      own_accumulators(out_);
      release(shared_.empty + 8 * ring_.stage);
      ring_.advance(plan_.n_stages);
    }
  }

  /// As run_stages, for e4m3: two units a step, because a unit's bytes arrive in half the time and the latencies of a step stay. A
  /// token group that takes one unit a stage takes those of two stages. A step's second unit may be after the item; it is masked.
  __device__ __forceinline__ void run_e4m3_stages() {
    const int unit = min(16 << row_shift_, Tile::kStageTokens);
    const int n_stages = unit == 16 ? 2 : 1;
    const int token = token_group_ * unit;
    int position = Tile::first_position(task_.kv_begin);
#pragma unroll 1
    for (; position < task_.kv_end; position += n_stages * Tile::kStageTokens) {
      RingPosition second = ring_;
      if (is_warmup_ == 0) barrier_wait(shared_.full + 8 * ring_.stage, ring_.parity);
      const bool is_pair = unit == 16 && position + Tile::kStageTokens < task_.kv_end;
      if (is_pair) {
        second.advance(plan_.n_stages);
        barrier_wait(shared_.full + 8 * second.stage, second.parity);
      }
      const std::uint32_t part = as_of_now(shared_.stages + ring_.stage * Tile::kStageBytes);
      const std::uint32_t other = unit == 16 ? shared_.stages + second.stage * Tile::kStageBytes : part;
#pragma unroll 1
      for (int i = 0; i < unit; i += 32) {
        const int at = position + token + i;
        const int next = unit > 16 ? at + 16 : is_pair ? at + Tile::kStageTokens : task_.kv_end;
        if (at < hull_hi_ && next + 16 > hull_lo_)
          step<Tile>({{part, token + i, at}, {other, unit > 16 ? token + i + 16 : token, next}});
      }
      if (is_warmup_ != 0) return;
      own_accumulators(out_);
      release(shared_.empty + 8 * ring_.stage);
      ring_.advance(plan_.n_stages);
      if (is_pair) {
        release(shared_.empty + 8 * ring_.stage);
        ring_.advance(plan_.n_stages);
      }
    }
  }

  /// Where keys and values have slots of their own: gives the keys' back.
  __device__ __forceinline__ void leave_keys() {
    release(shared_.empty + 8 * ring_.stage);
    ring_.advance(plan_.n_stages);
  }

  /// 16 tokens: those from `token` on of the stage at `part`, which stand at `position`.
  struct Unit {
    std::uint32_t part;
    int token;
    int position;
  };

  /// Sets those of the 8 tokens from `position` on that a row does not see to -infinity.
  __device__ __forceinline__ void mask(float (&scores)[4], int position) const {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = position + (lane_ & 3) * 2 + j % 2;
      if (at < row_bounds_[j / 2].x || at >= row_bounds_[j / 2].y) scores[j] = -INFINITY;
    }
  }

  /// Adds units of 16 tokens to the running state, all with one maximum.
  template <class Stage, int n>
  __device__ __forceinline__ void step(const Unit (&units)[n]) {
    float scores[2 * n][4];
#pragma unroll
    for (int u = 0; u < n; ++u) multiply_keys<Stage>(scores[2 * u], scores[2 * u + 1], units[u].part, units[u].token);
    if (p_.has_softcap) cap<16 * n>(scores);
#pragma unroll
    for (int u = 0; u < n; ++u) {
      if (units[u].position >= inner_lo_ && units[u].position + 16 <= inner_hi_) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) mask(scores[2 * u + i], units[u].position + i * 8);
    }
    weigh<16 * n>(scores);
#pragma unroll
    for (int u = 0; u < n; ++u)
      multiply_values<Stage>(scores[2 * u], scores[2 * u + 1], units[u].part + Stage::kPartBytes, units[u].token,
                             units[u].position);
  }

#ifdef BATON_SM90A
  /// Adds a whole stage, which every row sees, by matmuls of the warpgroup.
  template <class Stage>
  __device__ __forceinline__ void step_of_warpgroup(std::uint32_t part) {
    float scores[8][4];
    score_stage<T>(scores, queries_, part);
    if constexpr (Stage::kStageBytes != Tile::kStageBytes) {
      leave_keys();
      barrier_wait(shared_.full + 8 * ring_.stage, ring_.parity);
      wgmma_see_copies();
    }
    if (p_.has_softcap) cap<64>(scores);
    weigh<64>(scores);
    add_values<T>(out_, scores, part + Stage::kPartBytes);
  }
#endif

  /// Address of this lane's row of the four matrices of chunks `chunk` (even) and `chunk` + 1 of 16 tokens.
  __device__ __forceinline__ std::uint32_t e4m3_address(std::uint32_t part, int token, int chunk) const {
    const int matrix = lane_ >> 3;
    return (Tile::chunk_address(part, (matrix & 1) * 8 + (lane_ & 7), matrix >> 1) + token * Tile::kRowBytes) ^ (chunk << 4);
  }

  /// Scores of 16 tokens. Even and odd k steps have separate sums, which halves the chain of dependent matmuls.
  template <class Stage>
  __device__ __forceinline__ void multiply_keys(float (&low)[4], float (&high)[4], std::uint32_t part, int token) {
    float scores[2][4];
    float odd[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) scores[i][j] = odd[i][j] = 0;
    const int matrix = (lane_ >> 3);
#pragma unroll
    for (int k = 0; k < kKSteps; k += 2) {
      std::uint32_t a[2][4];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if constexpr (Tile::kQueriesInRegisters) {
#pragma unroll
          for (int i = 0; i < 4; ++i) a[j][i] = queries_[k + j][i];
        } else {
          load_queries<Stage>(a[j], k + j);
        }
      }
      if constexpr (Stage::kIsFp8) {  // two units a step are chains enough
        std::uint32_t b[4];
        load_matrices(b, e4m3_address(part, token, k));
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          multiply_16x8x16<T>(scores[i], a[0], e4m3_pair_to_half(b[i]), e4m3_pair_to_half(b[i] >> 16));
          multiply_16x8x16<T>(scores[i], a[1], e4m3_pair_to_half(b[2 + i]), e4m3_pair_to_half(b[2 + i] >> 16));
        }
      } else {
        std::uint32_t b[2][4];
        load_matrices(b[0], Stage::chunk_address(part, token + (matrix >> 1) * 8 + (lane_ & 7), 2 * k + (matrix & 1)));
        load_matrices(b[1], Stage::chunk_address(part, token + (matrix >> 1) * 8 + (lane_ & 7), 2 * k + 2 + (matrix & 1)));
        multiply_16x8x16<T>(scores[0], a[0], b[0][0], b[0][1]);
        multiply_16x8x16<T>(scores[1], a[0], b[0][2], b[0][3]);
        multiply_16x8x16<T>(odd[0], a[1], b[1][0], b[1][1]);
        multiply_16x8x16<T>(odd[1], a[1], b[1][2], b[1][3]);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      low[j] = Stage::kIsFp8 ? scores[0][j] : scores[0][j] + odd[0][j];
      high[j] = Stage::kIsFp8 ? scores[1][j] : scores[1][j] + odd[1][j];
    }
  }

  /// tanh of scaled scores, as 1 - 2 / (1 + e^2x).
  template <int kTokens>
  __device__ __forceinline__ void cap(float (&scores)[kTokens / 8][4]) {
    const float twice_log2 = 2 * 1.44269504f * p_.score_scale;
#pragma unroll
    for (int i = 0; i < kTokens / 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        scores[i][j] = 1 - __fdividef(2.0f, 1 + exp2_approx(scores[i][j] * (twice_log2 * row_factors_.of(j / 2))));
  }

  /// Turns scores into weights exp2(score - maximum) and updates the running maximum, the sum and the output so far.
  template <int kTokens>
  __device__ __forceinline__ void weigh(float (&scores)[kTokens / 8][4]) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float score_log2 = p_.has_softcap ? p_.score_log2 : p_.score_log2 * row_factors_.of(half);
      float m = scores[0][2 * half];
#pragma unroll
      for (int i = 0; i < kTokens / 8; ++i) m = fmaxf(m, fmaxf(scores[i][2 * half], scores[i][2 * half + 1]));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      const float new_max = fmaxf(max_[half], m * score_log2);
      const float base = new_max == -INFINITY ? 0.0f : new_max;
      factor[half] = exp2_approx(max_[half] - base);
      max_[half] = new_max;
      float l = 0;
#pragma unroll
      for (int i = 0; i < kTokens / 8; ++i)
#pragma unroll
        for (int j = 2 * half; j < 2 * half + 2; ++j) {
          scores[i][j] = exp2_approx(fmaf(scores[i][j], score_log2, -base));
          l += scores[i][j];
        }
      sum_[half] = sum_[half] * factor[half] + l;
    }
    if (__any_sync(~0u, factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
      for (int i = 0; i < kColumnTiles; ++i) {
        out_[i][0] *= factor[0];
        out_[i][1] *= factor[0];
        out_[i][2] *= factor[1];
        out_[i][3] *= factor[1];
      }
    }
  }

  /// Values of tokens outside the hull may be anything, also NaN. They count as zero.
  template <class Stage>
  __device__ __forceinline__ void multiply_values(const float (&low)[4], const float (&high)[4], std::uint32_t part, int token,
                                                  int position) {
    const int matrix = (lane_ >> 3);
    std::uint32_t a[4];
    pack_weights<T>(a, low, high);
    std::uint32_t keep[2] = {~0u, ~0u};
    if (position < hull_lo_ || position + 16 > hull_hi_) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = position + i * 8 + (lane_ & 3) * 2;
        keep[i] =
            (at >= hull_lo_ && at < hull_hi_ ? 0x0000ffffu : 0u) | (at + 1 >= hull_lo_ && at + 1 < hull_hi_ ? 0xffff0000u : 0u);
      }
    }
    const int row = token + (matrix & 1) * 8 + (lane_ & 7);
    if constexpr (Stage::kIsFp8) {
      // The even dimension of both tokens, then the odd one; byte 4 is zero.
      std::uint32_t select[2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        select[i] = ((keep[i] & 0x0000ffffu) != 0 ? 0x0100u : 0x0404u) | ((keep[i] & 0xffff0000u) != 0 ? 0x3020u : 0x4040u);
#pragma unroll
      for (int c = 0; c < kDim / 16; c += 2) {
        std::uint32_t b[4];
        load_matrices_transposed(b, e4m3_address(part, token, c));
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const std::uint32_t b0 = __byte_perm(b[2 * j], 0, select[0]);
          const std::uint32_t b1 = __byte_perm(b[2 * j + 1], 0, select[1]);
          multiply_16x8x16<T>(out_[2 * (c + j)], a, e4m3_pair_to_half(b0), e4m3_pair_to_half(b1));
          multiply_16x8x16<T>(out_[2 * (c + j) + 1], a, e4m3_pair_to_half(b0 >> 16), e4m3_pair_to_half(b1 >> 16));
        }
      }
    } else {
#pragma unroll
      for (int c = 0; c < kDim / 16; ++c) {
        std::uint32_t b[4];
        load_matrices_transposed(b, Stage::chunk_address(part, row, 2 * c + (matrix >> 1)));
        multiply_16x8x16<T>(out_[2 * c], a, b[0] & keep[0], b[1] & keep[1]);
        multiply_16x8x16<T>(out_[2 * c + 1], a, b[2] & keep[0], b[3] & keep[1]);
      }
    }
  }

  /// Empties the states of rows that see no key: they took part wherever no mask was applied.
  __device__ __forceinline__ void forget_blind_rows();
  /// Joins the states of the warps that hold the same rows, in the order of the token groups, and writes outputs or partial states,
  /// eight rows of each warp at a time.
  template <class Stage>
  __device__ __forceinline__ void write_tile();
  /// The factor of this warp's state in the joined state, for a row of its 16. Each of the row's four lanes handles a token group.
  __device__ __forceinline__ float join_states(int row, float mine);
  __device__ __forceinline__ int warp_of(int token_group, int row_group) const;
  /// Writes this warp's outputs of kColumns columns of eight rows to its part of the scratch memory. Matmuls with 8-bit values leave
  /// neighbouring columns in neighbouring tiles.
  template <class Stage>
  __device__ __forceinline__ void put_columns(int column0, float factor, int half);
  /// Writes partial states of 16-bit keys from registers, where each warp holds rows of its own.
  __device__ __forceinline__ void write_states();
  /// Sums the token groups' outputs and writes the result. kStride: floats between rows of the scratch memory.
  template <int kStride = Tile::kColumnStride>
  __device__ __forceinline__ void write_rows(int column0, int half);

  /// row / group for rows of a tile, without a division: exact below 2^16 / group.
  __device__ __forceinline__ int by_group(int row) const { return row * group_inverse_ >> 16; }

  const AttentionParams& p_;
  const SharedLayout<Tile>& shared_;
  const MemoryPlan& plan_;
  int thread_;
  int lane_;
  int warp_;
  int is_warmup_ = 0;
  int task_parity_ = 0;
  RingPosition ring_;

  // The current tile.
  TileTask task_;
  int group_ = 1;
  int group_inverse_ = 1 << 16;
  int n_rows_ = 0;
  int row_shift_ = 0;  ///< log2 of the number of row groups
  int token_groups_ = 1, row_group_ = 0, token_group_ = 0;
  int inner_lo_ = 0, inner_hi_ = 0, hull_lo_ = 0, hull_hi_ = 0;
  int2 row_bounds_[2];
  std::uint32_t queries_[Tile::kQueriesInRegisters ? kKSteps : 1][4];
  float out_[kColumnTiles][4];
  float max_[2], sum_[2];
  RowFactors<Tile::kIsFp8> row_factors_;
};

}  // namespace baton::cuda

#include "kernels/cuda/attention/general/results.cuh"
