/// The consumer warps of the attention kernel, with matmuls of their own for tiles of up to 8 query rows: those of
/// decode steps without relay, and of requests' own contexts. Keys and values are operand A of mma.sync, queries and
/// weights operand B of eight columns. That takes half of the matmuls and of the accumulators that 16 rows of queries
/// would take.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention/e4m3.cuh"
#include "kernels/cuda/attention/general/consumer.cuh"

namespace baton::cuda {

template <class Tile>
class FewRowsConsumer : public Consumer<Tile> {
  using Base = Consumer<Tile>;
  using T = typename Tile::Operand;
  using Unit = typename Base::Unit;
  static constexpr int kDim = Tile::kHeadDim;
  static constexpr int kChunks = kDim / 16;  ///< of 16 dimensions
  static constexpr int kMostRows = 8;
  /// Stages a step. Each warp takes 16 tokens of each. A stage of e4m3 arrives in half the time, and the latencies of a
  /// step stay.
  static constexpr int kStages = Tile::kIsFp8 ? 2 : 1;
  static_assert(kConsumerWarps * 16 == Tile::kStageTokens && Tile::kColumns == kDim && kChunks % 2 == 0);

 public:
  using Base::Base;

  __device__ void run() {
    Base::run_tiles([this] {
      if (n_rows_ <= kMostRows)
        run_few();
      else if (is_wide<Tile>(n_rows_))
        Base::template run_tile<std::conditional_t<Tile::kWidens, typename Tile::Wide, Tile>>();
      else
        Base::template run_tile<Tile>();
    });
  }

 private:
  using Base::hull_hi_;
  using Base::hull_lo_;
  using Base::inner_hi_;
  using Base::inner_lo_;
  using Base::is_warmup_;
  using Base::lane_;
  using Base::n_rows_;
  using Base::p_;
  using Base::plan_;
  using Base::release;
  using Base::ring_;
  using Base::row_bounds_;
  using Base::shared_;
  using Base::task_;
  using Base::warp_;

  /// The state of a warp that computes a quarter of a tile's tokens for all its rows. A lane's scores are of rows
  /// 2 (lane % 4) and the next one. Its outputs are of these rows and, in a chunk, of dimension lane / 4 and the eighth
  /// after it; over e4m3, whose bytes lie in pairs, of dimension 2 (lane / 4) and the next one.
  struct Few {
    std::uint32_t queries[kChunks][2];  ///< operand B
    float factors[2];                   ///< of the rows' scores
    float base[2];                      ///< what is subtracted from a row's scores: at most kSlack below their maximum
    float sum[2];                       ///< of this lane's tokens
    float out[kChunks][4];              ///< first dimension of both rows, then the second dimension
    bool is_empty;                      ///< nothing was added yet
  };
  static constexpr int kScratchStride = kDim + 4;  ///< floats of a row; four pairs of rows use different banks
  static constexpr float kNoBase = -1e38f;         ///< below all scores
  /// A row's base moves only when a score (base 2) of the row exceeds it by more than this. Weights are at most 2^8
  /// then, which 16-bit types hold as precisely as 1. The rows decide apart, so that no row changes the bits of
  /// another.
  static constexpr float kSlack = 8;

  __device__ __forceinline__ void run_few() {
    this->row_shift_ = 0;
    this->token_groups_ = kConsumerWarps;
    this->row_group_ = 0;
    this->token_group_ = warp_;
    find_few_bounds();
    Few few;
    few.is_empty = true;
    take_few_queries(few);
#pragma unroll
    for (int c = 0; c < 2; ++c) few.base[c] = kNoBase, few.sum[c] = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) few.out[c][0] = few.out[c][1] = few.out[c][2] = few.out[c][3] = 0;
    run_few_stages(few);
    if (is_warmup_ != 0) own_accumulators(few.out);
    write_few(few);
    Base::release_queries(true);
  }

  /// As find_bounds. Most of these tiles have one token row.
  __device__ __forceinline__ void find_few_bounds() {
    if (is_warmup_ == 0 && task_.n_token_rows == 1) {
      const TokenRow row = shared_.rows[0];
      row_bounds_[0] = row_bounds_[1] = Base::clipped(row);
      inner_lo_ = hull_lo_ = row_bounds_[0].x;
      inner_hi_ = hull_hi_ = row_bounds_[0].y;
      return;
    }
    Base::find_bounds();
    if (is_warmup_ != 0) return;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const TokenRow& row = shared_.rows[Base::by_group(min((lane_ & 3) * 2 + c, n_rows_ - 1))];
      row_bounds_[c] = Base::clipped(row);
    }
  }

  /// Zeros after the tile's last row and from head_dim on. Queries for e4m3 keys become f16; a row with a query beyond
  /// f16 is multiplied by a power of two first (attention/e4m3.cuh).
  __device__ __forceinline__ void take_few_queries(Few& few) {
    const int row = lane_ >> 2;
    if constexpr (Tile::kIsFp8) {
      const std::byte* from = shared_.queries + row * Tile::kQueryStride;
      std::uint32_t a[kChunks][4];
#pragma unroll
      for (int k = 0; k < kChunks; ++k) {
        uint2 four = *reinterpret_cast<const uint2*>(from + k * 32 + (lane_ & 3) * 8);
        if (row >= n_rows_ || k * 16 + (lane_ & 3) * 4 >= p_.head_dim) four = {0, 0};
        a[k][0] = four.x, a[k][2] = four.y;
        a[k][1] = a[k][3] = 0;
      }
      const RowFactors<true> factors = queries_to_half(a);
#pragma unroll
      for (int k = 0; k < kChunks; ++k) few.queries[k][0] = a[k][0], few.queries[k][1] = a[k][2];
#pragma unroll
      for (int c = 0; c < 2; ++c) few.factors[c] = __shfl_sync(~0u, factors.of(0), ((lane_ & 3) * 2 + c) * 4);
    } else {
      const int n_dims = row < n_rows_ ? p_.head_dim : 0;
      const std::uint32_t at =
          as_of_now(shared_address(shared_.queries)) + (lane_ & 7) * Tile::kQueryStride + (lane_ >> 3) * 16;
#pragma unroll
      for (int k = 0; k < kChunks; k += 2) {
        std::uint32_t b[4];
        load_matrices(b, at + k * 32);
#pragma unroll
        for (int i = 0; i < 4; ++i) few.queries[k + i / 2][i % 2] = k * 16 + i * 8 < n_dims ? b[i] : 0;
      }
      few.factors[0] = few.factors[1] = 1;
    }
    Base::release_queries(false);
  }

  /// A last stage alone is followed by one that is masked.
  __device__ __forceinline__ void run_few_stages(Few& few) {
    const int token = warp_ * 16;
    int position = Tile::first_position(task_.kv_begin);
#pragma unroll 1
    for (; position < task_.kv_end; position += kStages * Tile::kStageTokens) {
      RingPosition second = ring_;
      if (is_warmup_ == 0) barrier_wait(shared_.full + 8 * ring_.stage, ring_.parity);
      const bool is_pair = kStages == 2 && position + Tile::kStageTokens < task_.kv_end;
      if (is_pair) {
        second.advance(plan_.n_stages);
        barrier_wait(shared_.full + 8 * second.stage, second.parity);
      }
      const std::uint32_t part = as_of_now(shared_.stages + ring_.stage * Tile::kStageBytes);
      const int at = position + token;
      if constexpr (kStages == 2) {
        const std::uint32_t other = shared_.stages + second.stage * Tile::kStageBytes;
        const int next = is_pair ? at + Tile::kStageTokens : task_.kv_end;
        if (at < hull_hi_ && next + 16 > hull_lo_) step_few(few, {{part, token, at}, {other, token, next}});
      } else {
        if (at < hull_hi_ && at + 16 > hull_lo_) step_few(few, {{part, token, at}});
      }
      if (is_warmup_ != 0) return;
      own_accumulators(few.out);
      release(shared_.empty + 8 * ring_.stage);
      ring_.advance(plan_.n_stages);
      if (is_pair) {
        release(shared_.empty + 8 * ring_.stage);
        ring_.advance(plan_.n_stages);
      }
    }
  }

  __device__ __forceinline__ void step_few(Few& few, const Unit (&units)[kStages]) {
    float scores[kStages][4];
#pragma unroll
    for (int u = 0; u < kStages; ++u) multiply_few_keys(few, scores[u], units[u]);
    if (p_.has_softcap) {  // tanh of scaled scores, as 1 - 2 / (1 + e^2x)
      const float twice_log2 = 2 * 1.44269504f * p_.score_scale;
#pragma unroll
      for (int u = 0; u < kStages; ++u)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          scores[u][j] = 1 - __fdividef(2.0f, 1 + exp2_approx(scores[u][j] * (twice_log2 * few.factors[j % 2])));
    }
#pragma unroll
    for (int u = 0; u < kStages; ++u) {
      if (units[u].position >= inner_lo_ && units[u].position + 16 <= inner_hi_) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = units[u].position + j / 2 * 8 + (lane_ >> 2);
        if (at < row_bounds_[j % 2].x || at >= row_bounds_[j % 2].y) scores[u][j] = -INFINITY;
      }
    }
    weigh_few(few, scores);
#pragma unroll
    for (int u = 0; u < kStages; ++u) multiply_few_values(few, scores[u], units[u]);
  }

  /// Scores of tokens lane / 4 and lane / 4 + 8 for this lane's two rows: {first token, both rows, then the other
  /// token}. Even and odd chunks have separate sums, which halves the chain of dependent matmuls.
  __device__ __forceinline__ void multiply_few_keys(const Few& few, float (&scores)[4], const Unit& unit) {
    float odd[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) scores[j] = odd[j] = 0;
    const int matrix = lane_ >> 3;
    const int row = unit.token + (matrix & 1) * 8 + (lane_ & 7);
#pragma unroll
    for (int k = 0; k < kChunks; k += 2) {
      std::uint32_t a[2][4];
      if constexpr (Tile::kIsFp8) {
        std::uint32_t pairs[4];
        load_matrices(pairs, Base::e4m3_address(unit.part, unit.token, k));
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) a[i][j] = e4m3_pair_to_half(pairs[2 * i + j % 2] >> (j < 2 ? 0 : 16));
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) load_matrices(a[i], Tile::chunk_address(unit.part, row, 2 * (k + i) + (matrix >> 1)));
      }
      multiply_16x8x16<T>(scores, a[0], few.queries[k][0], few.queries[k][1]);
      multiply_16x8x16<T>(odd, a[1], few.queries[k + 1][0], few.queries[k + 1][1]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) scores[j] += odd[j];
  }

  /// Turns scores into weights exp2(score - base).
  __device__ __forceinline__ void weigh_few(Few& few, float (&scores)[kStages][4]) {
    float score_log2[2];
    float m[2];
    bool exceeds = false;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      score_log2[c] = p_.has_softcap ? p_.score_log2 : p_.score_log2 * few.factors[c];
      m[c] = fmaxf(scores[0][c], scores[0][c + 2]);
      if constexpr (kStages == 2) m[c] = fmaxf(m[c], fmaxf(scores[1][c], scores[1][c + 2]));
      m[c] *= score_log2[c];
      exceeds = exceeds || m[c] > few.base[c] + kSlack;
    }
    if (few.is_empty || __any_sync(~0u, exceeds)) move_bases(few, m);
    few.is_empty = false;
#pragma unroll
    for (int u = 0; u < kStages; ++u)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        scores[u][j] = exp2_approx(fmaf(scores[u][j], score_log2[j % 2], -few.base[j % 2]));
        few.sum[j % 2] += scores[u][j];
      }
  }
  /// Raises the bases of rows with a score beyond the slack to the maxima, of which `m` are this lane's.
  __device__ __forceinline__ void move_bases(Few& few, const float (&m)[2]) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float most = m[c];
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, lanes));
      if (!(most > few.base[c] + kSlack)) most = few.base[c];
      const float factor = exp2_approx(few.base[c] - most);
      few.base[c] = most;
      if (few.is_empty) continue;
      few.sum[c] *= factor;
#pragma unroll
      for (int i = 0; i < kChunks; ++i) few.out[i][c] *= factor, few.out[i][c + 2] *= factor;
    }
  }

  /// Values of tokens outside the hull may be anything, also NaN. They count as zero.
  __device__ __forceinline__ void multiply_few_values(Few& few, const float (&weights)[4], const Unit& unit) {
    const std::uint32_t b0 = transpose_8x8(pack_pair<T>(weights[0], weights[1]));
    const std::uint32_t b1 = transpose_8x8(pack_pair<T>(weights[2], weights[3]));
    // The bytes of two tokens that are kept, as __byte_perm selects them: for e4m3 the first dimension of both, then
    // the next one. Byte 4 is zero.
    constexpr std::uint32_t kFirst = Tile::kIsFp8 ? 0x0100u : 0x0010u, kSecond = Tile::kIsFp8 ? 0x3020u : 0x3200u;
    constexpr std::uint32_t kNoFirst = Tile::kIsFp8 ? 0x0404u : 0x0044u, kNoSecond = Tile::kIsFp8 ? 0x4040u : 0x4400u;
    std::uint32_t select[2] = {kFirst | kSecond, kFirst | kSecond};
    const bool is_cut = unit.position < hull_lo_ || unit.position + 16 > hull_hi_;
    if (is_cut) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = unit.position + i * 8 + (lane_ & 3) * 2;
        select[i] = (at >= hull_lo_ && at < hull_hi_ ? kFirst : kNoFirst) |
                    (at + 1 >= hull_lo_ && at + 1 < hull_hi_ ? kSecond : kNoSecond);
      }
    }
    const std::uint32_t values = unit.part + Tile::kPartBytes;
    if constexpr (Tile::kIsFp8) {
#pragma unroll
      for (int c = 0; c < kChunks; c += 2) {
        std::uint32_t v[4];
        load_matrices_transposed(v, Base::e4m3_address(values, unit.token, c));
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const std::uint32_t low = __byte_perm(v[2 * i], 0, select[0]);
          const std::uint32_t high = __byte_perm(v[2 * i + 1], 0, select[1]);
          const std::uint32_t a[4] = {e4m3_pair_to_half(low), e4m3_pair_to_half(low >> 16), e4m3_pair_to_half(high),
                                      e4m3_pair_to_half(high >> 16)};
          multiply_16x8x16<T>(few.out[c + i], a, b0, b1);
        }
      }
    } else {
      const int matrix = lane_ >> 3;
      const int row = unit.token + (matrix >> 1) * 8 + (lane_ & 7);
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        std::uint32_t a[4];
        load_matrices_transposed(a, Tile::chunk_address(values, row, 2 * c + (matrix & 1)));
        if (is_cut) {
#pragma unroll
          for (int j = 0; j < 4; ++j) a[j] = __byte_perm(a[j], 0, select[j / 2]);
        }
        multiply_16x8x16<T>(few.out[c], a, b0, b1);
      }
    }
  }

  /// Joins the warps' states and writes outputs or partial states.
  __device__ __forceinline__ void write_few(Few& few) {
    float max[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) few.sum[c] += __shfl_xor_sync(~0u, few.sum[c], lanes);
      max[c] = few.base[c] == kNoBase ? -INFINITY : few.base[c];
      if (row_bounds_[c].x >= row_bounds_[c].y) {  // a row that sees no key took part wherever no mask was applied
        max[c] = -INFINITY;
        few.sum[c] = 0;
#pragma unroll
        for (int i = 0; i < kChunks; ++i) few.out[i][c] = few.out[i][c + 2] = 0;
      }
      if (lane_ < 4) shared_.warp_states[warp_ * 16 + lane_ * 2 + c] = {max[c], few.sum[c]};
    }
    named_barrier(kConsumerBarrier, kConsumerThreads);
    const int row = lane_ >> 2;
    const float factor_of_row = Base::join_states(row, shared_.warp_states[warp_ * 16 + row].x);
    float factors[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) factors[c] = __shfl_sync(~0u, factor_of_row, ((lane_ & 3) * 2 + c) * 4);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float* const to = shared_.scratch + (warp_ * kMostRows + (lane_ & 3) * 2 + c) * kScratchStride;
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        const float first = few.out[i][c] * factors[c];
        const float second = few.out[i][c + 2] * factors[c];
        if constexpr (Tile::kIsFp8)
          *reinterpret_cast<float2*>(to + 16 * i + row * 2) = {first, second};
        else
          to[16 * i + row] = first, to[16 * i + 8 + row] = second;
      }
    }
    named_barrier(kConsumerBarrier, kConsumerThreads);
    Base::template write_rows<kScratchStride>(0, 0);  // needs no barrier after it (write_tile)
  }
};

}  // namespace baton::cuda
