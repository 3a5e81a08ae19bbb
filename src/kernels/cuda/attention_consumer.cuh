/// The consumer warps of the attention kernel: matmuls, the running softmax, and the results of a tile.
#pragma once

#include "kernels/cuda/attention_step.cuh"
#include "kernels/cuda/attention_tile.cuh"

namespace baton::cuda {

template <class Tile>
class Consumer {
  using T = typename Tile::Element;
  static constexpr int kDim = Tile::kHeadDim;
  static constexpr int kColumnTiles = kDim / 8;  // of the output, 8 wide
  static constexpr int kKSteps = kDim / 16;

 public:
  __device__ Consumer(const AttentionParams& p, const SharedLayout<Tile>& shared, int n_stages)
      : p_(p),
        shared_(shared),
        n_stages_(n_stages),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % 32),
        warp_(thread_ / 32) {}

  __device__ void run() {
    group_ = p_.n_heads / p_.n_kv_heads;
    group_inverse_ = ((1 << 16) + group_ - 1) / group_;
    // The first round is a warm-up: it computes with whatever is in shared memory and writes nothing. It loads the
    // instructions into the cache before the first tile arrives; cold instructions would cost that tile microseconds.
    // The warm-up must run the same code, so the compiler must not know which round it is.
    asm volatile("mov.u32 %0, 1;" : "=r"(is_warmup_));
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
      run_tile();
      is_warmup_ = 0;
    }
  }

 private:
  __device__ __forceinline__ void run_tile() {
    n_rows_ = task_.n_token_rows * group_;
    row_shift_ = n_rows_ <= 16 ? 0 : n_rows_ <= 32 ? 1 : 2;
    token_groups_ = kConsumerWarps >> row_shift_;
    row_group_ = warp_ & ((1 << row_shift_) - 1);
    token_group_ = warp_ >> row_shift_;
    find_bounds();
    if constexpr (Tile::kQueriesInRegisters) {
#pragma unroll
      for (int k = 0; k < kKSteps; ++k) load_queries(queries_[k], k);
      if (is_warmup_ == 0) release(shared_.task_empty);
    }
    max_[0] = max_[1] = -INFINITY;
    sum_[0] = sum_[1] = 0;
#pragma unroll
    for (int i = 0; i < kColumnTiles; ++i) out_[i][0] = out_[i][1] = out_[i][2] = out_[i][3] = 0;
    run_stages();
    if constexpr (!Tile::kQueriesInRegisters)
      if (is_warmup_ == 0) release(shared_.task_empty);
    write_tile();
  }

  /// Computes positions, clipped to the item's: those that this thread's two rows see; those that every row of the
  /// tile sees, [inner_lo_, inner_hi_); and those that some row sees, [hull_lo_, hull_hi_).
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
    for (int half = 0; half < 2; ++half) {  // rows behind the tile's last row use the bounds of the last row
      const TokenRow& row = shared_.rows[by_group(min(row_group_ * 16 + half * 8 + (lane_ >> 2), n_rows_ - 1))];
      row_bounds_[half] = {max(task_.kv_begin, row.kv_lo), min(task_.kv_end, row.kv_hi)};
    }
  }

  /// Operand A of k step `k`: the queries of this warp's 16 rows, zeros from head_dim on. For 8-bit keys each lane
  /// holds four neighbouring dimensions of the 16, as the bytes lie in memory.
  __device__ __forceinline__ void load_queries(std::uint32_t (&a)[4], int k) {
    const std::byte* base = shared_.queries + row_group_ * 16 * Tile::kQueryStride;
    if constexpr (Tile::kIsFp8) {
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

  /// Divides a stage into units of 16 tokens for each row group, at most the whole stage. The token groups take units
  /// in turn.
  __device__ __forceinline__ void run_stages() {
    const int unit = min(16 << row_shift_, Tile::kStageTokens);
    const int n_units = unit == 16 ? Tile::kStageTokens / 16 : unit == 32 ? Tile::kStageTokens / 32 : 1;
    int position = first_stage_position(task_.kv_begin);
#pragma unroll 1
    for (int stage = 0; position < task_.kv_end; ++stage, position += Tile::kStageTokens) {
      if (is_warmup_ == 0) barrier_wait(shared_.full + 8 * ring_.stage, ring_.parity);
      const int mine = (token_group_ - stage * n_units) & (token_groups_ - 1);
      if (mine < n_units) {
        const std::uint32_t part = as_of_now(shared_.stages + ring_.stage * Tile::kStageBytes);
        bool done = false;
#ifdef BATON_SM90A
        if constexpr (Tile::kWgmma) {
          if (unit == 64 && position >= inner_lo_ && position + 64 <= inner_hi_) {
            step_of_warpgroup(part);
            done = true;
          }
        }
#endif
        if (!done) {
#pragma unroll 1
          for (int token = mine * unit; token < (mine + 1) * unit; token += 16)
            if (position + token < hull_hi_ && position + token + 16 > hull_lo_) step(part, token, position + token);
        }
      }
      if (is_warmup_ != 0) return;
      own_accumulators(out_);
      release(shared_.empty + 8 * ring_.stage);
      ring_.advance(n_stages_);
    }
  }

  /// Adds 16 tokens to the running state: those from `token` on of the stage at `part`, which stand at `position`.
  __device__ __forceinline__ void step(std::uint32_t part, int token, int position) {
    float scores[2][4];
    multiply_keys(scores, part, token);
    if (p_.has_softcap) cap<16>(scores);
    if (position < inner_lo_ || position + 16 > inner_hi_) {
      const int first = position + (lane_ & 3) * 2;
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int at = first + i * 8 + j % 2;
          if (at < row_bounds_[j / 2].x || at >= row_bounds_[j / 2].y) scores[i][j] = -INFINITY;
        }
    }
    weigh<16>(scores);
    multiply_values(scores, part + Tile::kPartBytes, token, position);
  }

#ifdef BATON_SM90A
  /// Adds a whole stage, which every row sees, by matmuls of the warpgroup.
  __device__ __forceinline__ void step_of_warpgroup(std::uint32_t part) {
    float scores[8][4];
    wgmma_see_copies();
    own_accumulators(scores);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kKSteps; ++k)
      wgmma_64x64x16<T>(scores, queries_[k], wgmma_descriptor(part + k / 4 * 128 * 64 + k % 4 * 32, 16, 1024), k > 0);
    wgmma_commit();
    wgmma_wait<0>();
    own_accumulators(scores);
    if (p_.has_softcap) cap<64>(scores);
    weigh<64>(scores);
    std::uint32_t weights[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) pack_weights(weights[k], scores[2 * k], scores[2 * k + 1]);
    own_accumulators(out_);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      wgmma_transposed<T>(out_, weights[k], wgmma_descriptor(part + Tile::kPartBytes + k * 16 * 128, 128 * 64, 1024));
    wgmma_commit();
    wgmma_wait<0>();
    own_accumulators(out_);
  }
#endif

  /// Scores of 16 tokens. Even and odd k steps have separate sums, which halves the chain of dependent matmuls.
  __device__ __forceinline__ void multiply_keys(float (&scores)[2][4], std::uint32_t part, int token) {
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
          load_queries(a[j], k + j);
        }
      }
      if constexpr (Tile::kIsFp8) {
        std::uint32_t b[4];
        load_matrices(b, Tile::chunk_address(part, token + (matrix & 1) * 8 + (lane_ & 7), k + (matrix >> 1)));
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          multiply_16x8x16<T>(scores[i], a[0], e4m3_pair_to_bf16(b[i]), e4m3_pair_to_bf16(b[i] >> 16));
          multiply_16x8x16<T>(odd[i], a[1], e4m3_pair_to_bf16(b[2 + i]), e4m3_pair_to_bf16(b[2 + i] >> 16));
        }
      } else {
        std::uint32_t b[2][4];
        load_matrices(b[0], Tile::chunk_address(part, token + (matrix >> 1) * 8 + (lane_ & 7), 2 * k + (matrix & 1)));
        load_matrices(b[1], Tile::chunk_address(part, token + (matrix >> 1) * 8 + (lane_ & 7), 2 * k + 2 + (matrix & 1)));
        multiply_16x8x16<T>(scores[0], a[0], b[0][0], b[0][1]);
        multiply_16x8x16<T>(scores[1], a[0], b[0][2], b[0][3]);
        multiply_16x8x16<T>(odd[0], a[1], b[1][0], b[1][1]);
        multiply_16x8x16<T>(odd[1], a[1], b[1][2], b[1][3]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) scores[i][j] += odd[i][j];
  }

  /// tanh of scaled scores, as 1 - 2 / (1 + e^2x).
  template <int kTokens>
  __device__ __forceinline__ void cap(float (&scores)[kTokens / 8][4]) {
    const float twice_log2 = 2 * 1.44269504f * p_.score_scale;
#pragma unroll
    for (int i = 0; i < kTokens / 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) scores[i][j] = 1 - __fdividef(2.0f, 1 + exp2_approx(scores[i][j] * twice_log2));
  }

  /// Turns scores into weights exp2(score - maximum) and updates the running maximum, the sum and the output so far.
  template <int kTokens>
  __device__ __forceinline__ void weigh(float (&scores)[kTokens / 8][4]) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float m = scores[0][2 * half];
#pragma unroll
      for (int i = 0; i < kTokens / 8; ++i) m = fmaxf(m, fmaxf(scores[i][2 * half], scores[i][2 * half + 1]));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
      m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
      const float new_max = fmaxf(max_[half], m * p_.score_log2);
      const float base = new_max == -INFINITY ? 0.0f : new_max;
      factor[half] = exp2_approx(max_[half] - base);
      max_[half] = new_max;
      float l = 0;
#pragma unroll
      for (int i = 0; i < kTokens / 8; ++i)
#pragma unroll
        for (int j = 2 * half; j < 2 * half + 2; ++j) {
          scores[i][j] = exp2_approx(fmaf(scores[i][j], p_.score_log2, -base));
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

  __device__ __forceinline__ static void pack_weights(std::uint32_t (&a)[4], const float (&low)[4], const float (&high)[4]) {
    a[0] = pack_pair<T>(low[0], low[1]);
    a[1] = pack_pair<T>(low[2], low[3]);
    a[2] = pack_pair<T>(high[0], high[1]);
    a[3] = pack_pair<T>(high[2], high[3]);
  }

  /// Values of tokens outside the hull may be anything, also NaN. They count as zero.
  __device__ __forceinline__ void multiply_values(const float (&scores)[2][4], std::uint32_t part, int token, int position) {
    const int matrix = (lane_ >> 3);
    std::uint32_t a[4];
    pack_weights(a, scores[0], scores[1]);
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
    if constexpr (Tile::kIsFp8) {
#pragma unroll
      for (int c = 0; c < kDim / 16; c += 2) {
        std::uint32_t b[4];
        load_matrices_transposed(b, Tile::chunk_address(part, row, c + (matrix >> 1)));
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
          for (int odd = 0; odd < 2; ++odd) {
            const int selector = odd == 0 ? 0x4420 : 0x4431;  // the even or odd dimension of both tokens
            multiply_16x8x16<T>(out_[2 * (c + j) + odd], a, e4m3_pair_to_bf16(__byte_perm(b[2 * j] & keep[0], 0, selector)),
                                e4m3_pair_to_bf16(__byte_perm(b[2 * j + 1] & keep[1], 0, selector)));
          }
      }
    } else {
#pragma unroll
      for (int c = 0; c < kDim / 16; ++c) {
        std::uint32_t b[4];
        load_matrices_transposed(b, Tile::chunk_address(part, row, 2 * c + (matrix >> 1)));
        multiply_16x8x16<T>(out_[2 * c], a, b[0] & keep[0], b[1] & keep[1]);
        multiply_16x8x16<T>(out_[2 * c + 1], a, b[2] & keep[0], b[3] & keep[1]);
      }
    }
  }

  /// Empties the states of rows that see no key: they took part wherever no mask was applied.
  __device__ __forceinline__ void forget_blind_rows() {
    const bool blind[2] = {row_bounds_[0].x >= row_bounds_[0].y, row_bounds_[1].x >= row_bounds_[1].y};
    if (!__any_sync(~0u, blind[0] || blind[1])) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!blind[half]) continue;
      max_[half] = -INFINITY;
      sum_[half] = 0;
#pragma unroll
      for (int i = 0; i < kColumnTiles; ++i) out_[i][2 * half] = out_[i][2 * half + 1] = 0;
    }
  }

  /// Joins the states of the warps that hold the same rows, in the order of the token groups, and writes outputs or
  /// partial states, eight rows of each warp at a time.
  __device__ __forceinline__ void write_tile() {
    forget_blind_rows();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum_[half] += __shfl_xor_sync(~0u, sum_[half], 1);
      sum_[half] += __shfl_xor_sync(~0u, sum_[half], 2);
      if ((lane_ & 3) == 0) shared_.warp_states[warp_ * 16 + half * 8 + (lane_ >> 2)] = {max_[half], sum_[half]};
    }
    named_barrier(kConsumerBarrier, kConsumerThreads);
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) factor[half] = join_states(half * 8 + (lane_ >> 2), max_[half]);
#pragma unroll
    for (int column0 = 0; column0 < kDim; column0 += Tile::kColumns) {
#pragma unroll 1
      for (int half = 0; half < 2 && half * 8 < n_rows_; ++half) {
        put_columns(column0, half == 0 ? factor[0] : factor[1], half);
        named_barrier(kConsumerBarrier, kConsumerThreads);
        write_rows(column0, half);
        named_barrier(kConsumerBarrier, kConsumerThreads);
      }
    }
  }

  /// The factor of this warp's state in the joined state, for row `row` of this warp's 16. Each of the four lanes of a
  /// row handles one token group.
  __device__ __forceinline__ float join_states(int row, float mine) {
    static_assert(kConsumerWarps == 4);
    const int token_group = lane_ & 3;
    const float2 state = token_group < token_groups_ ? shared_.warp_states[warp_of(token_group, row_group_) * 16 + row]
                                                     : make_float2(-INFINITY, 0);
    float m = state.x;
    m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
    m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
    const float base = m == -INFINITY ? 0.0f : m;
    float l = state.y * exp2_approx(state.x - base);
    l += __shfl_xor_sync(~0u, l, 1);
    l += __shfl_xor_sync(~0u, l, 2);
    if (token_group_ == 0 && token_group == 0) shared_.row_states[row_group_ * 16 + row] = {m, l};
    return exp2_approx(mine - base);
  }
  __device__ __forceinline__ int warp_of(int token_group, int row_group) const {
    return (token_group << row_shift_) + row_group;
  }

  /// Writes this warp's outputs of kColumns columns of eight rows to its part of the scratch memory. Matmuls with
  /// 8-bit values leave neighbouring columns in neighbouring tiles.
  __device__ __forceinline__ void put_columns(int column0, float factor, int half) {
    float* to = shared_.scratch + (warp_ * 8 + (lane_ >> 2)) * Tile::kColumnStride;
#pragma unroll
    for (int c = 0; c < Tile::kColumns / 16; ++c) {
      const float(&low)[4] = out_[2 * (column0 / 16 + c)];
      const float(&high)[4] = out_[2 * (column0 / 16 + c) + 1];
      const float x[4] = {half == 0 ? low[0] : low[2], half == 0 ? low[1] : low[3], half == 0 ? high[0] : high[2],
                          half == 0 ? high[1] : high[3]};
      if constexpr (Tile::kIsFp8) {
        *reinterpret_cast<float4*>(to + 16 * c + (lane_ & 3) * 4) = {x[0] * factor, x[2] * factor, x[1] * factor,
                                                                     x[3] * factor};
      } else {
        *reinterpret_cast<float2*>(to + 16 * c + (lane_ & 3) * 2) = {x[0] * factor, x[1] * factor};
        *reinterpret_cast<float2*>(to + 16 * c + 8 + (lane_ & 3) * 2) = {x[2] * factor, x[3] * factor};
      }
    }
  }

  /// Sums the token groups' outputs and writes the result.
  __device__ __forceinline__ void write_rows(int column0, int half) {
    constexpr int kVectors = Tile::kColumns / 4;
#pragma unroll 1
    for (int i = thread_; i < (8 * kVectors << row_shift_); i += kConsumerThreads) {
      const int row_group = static_cast<unsigned>(i) / (8 * kVectors);
      const int row8 = static_cast<unsigned>(i) / kVectors % 8;
      const int row = row_group * 16 + half * 8 + row8;
      const int column = column0 + static_cast<unsigned>(i) % kVectors * 4;
      if (row >= n_rows_ || column >= p_.head_dim || is_warmup_ != 0) continue;
      float4 sum = {0, 0, 0, 0};
      float4 parts[kConsumerWarps];
#pragma unroll
      for (int t = 0; t < kConsumerWarps; ++t)
        if (t < token_groups_)
          parts[t] =
              *reinterpret_cast<const float4*>(shared_.scratch + (warp_of(t, row_group) * 8 + row8) * Tile::kColumnStride +
                                               static_cast<unsigned>(i) % kVectors * 4);
#pragma unroll
      for (int t = 0; t < kConsumerWarps; ++t)
        if (t < token_groups_) sum.x += parts[t].x, sum.y += parts[t].y, sum.z += parts[t].z, sum.w += parts[t].w;
      const float2 state = shared_.row_states[row];
      const int token_row = by_group(row);
      const int head = task_.kv_head * group_ + row - token_row * group_;
      float factor = Tile::kIsFp8 ? p_.v_scale : 1.0f;
      if (task_.is_direct != 0) factor = state.y != 0 ? factor / state.y : 0.0f;
      sum.x *= factor, sum.y *= factor, sum.z *= factor, sum.w *= factor;
      if (task_.is_direct != 0) {
        store_output<T>(p_, (static_cast<std::int64_t>(task_.first_row + token_row) * p_.n_heads + head) * p_.head_dim + column,
                        sum);
      } else {
        const std::int64_t index = static_cast<std::int64_t>(task_.first_partial + token_row) * p_.n_heads + head;
        *reinterpret_cast<float4*>(p_.part_o + index * p_.head_dim + column) = sum;
        if (column == 0) {
          p_.part_m[index] = state.x;
          p_.part_l[index] = state.y;
        }
      }
    }
  }

  /// row / group for rows of a tile, without a division: exact below 2^16 / group.
  __device__ __forceinline__ int by_group(int row) const { return row * group_inverse_ >> 16; }

  const AttentionParams& p_;
  const SharedLayout<Tile>& shared_;
  int n_stages_;
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
};

}  // namespace baton::cuda
