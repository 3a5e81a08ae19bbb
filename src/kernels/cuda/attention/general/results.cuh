/// The end of a tile: the consumer warps join their states and write outputs or partial states. Included by
/// attention/general/consumer.cuh, which declares what stands here.
#pragma once

#include "kernels/cuda/attention/general/consumer.cuh"

namespace baton::cuda {

template <class Tile>
__device__ __forceinline__ void Consumer<Tile>::forget_blind_rows() {
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

template <class Tile>
template <class Stage>
__device__ __forceinline__ void Consumer<Tile>::write_tile() {
  forget_blind_rows();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum_[half] += __shfl_xor_sync(~0u, sum_[half], 1);
    sum_[half] += __shfl_xor_sync(~0u, sum_[half], 2);
  }
  if constexpr (!Tile::kIsFp8)
    if (row_shift_ == 2 && task_.is_direct == 0) return write_states();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
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
      put_columns<Stage>(column0, half == 0 ? factor[0] : factor[1], half);
      named_barrier(kConsumerBarrier, kConsumerThreads);
      write_rows(column0, half);
      // The last rows need no barrier: a warp writes to the scratch memory again after the next tile's first barrier.
      const bool is_last = column0 + Tile::kColumns >= kDim && (half == 1 || n_rows_ <= 8);
      if (!is_last) named_barrier(kConsumerBarrier, kConsumerThreads);
    }
  }
}

template <class Tile>
__device__ __forceinline__ void Consumer<Tile>::write_states() {
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
    const bool is_odd = (lane_ & 1) != 0;
    const int row = row_group_ * 16 + half * 8 + (lane_ >> 2);
    const bool is_mine = row < n_rows_ && is_warmup_ == 0;
    const int token_row = by_group(row);
    const int head = task_.kv_head * group_ + row - token_row * group_;
    const std::int64_t index = static_cast<std::int64_t>(task_.first_partial + token_row) * p_.n_heads + head;
    // Neighbouring lanes exchange columns, so that each has four columns of one tile: the even lane of a tile, the odd one
    // of the tile after it.
    float* const to = p_.part_o + index * p_.head_dim + (is_odd ? 8 : 0) + (lane_ & 2) * 2;
#pragma unroll
    for (int c = 0; c < kColumnTiles; c += 2) {
      float mine[2], other[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float low = half == 0 ? out_[c][j] : out_[c][2 + j];
        const float high = half == 0 ? out_[c + 1][j] : out_[c + 1][2 + j];
        mine[j] = is_odd ? high : low;
        other[j] = __shfl_xor_sync(~0u, is_odd ? low : high, 1);
      }
      if (is_mine && (c + (is_odd ? 1 : 0)) * 8 < p_.head_dim)
        *reinterpret_cast<float4*>(to + c * 8) =
            is_odd ? make_float4(other[0], other[1], mine[0], mine[1]) : make_float4(mine[0], mine[1], other[0], other[1]);
    }
    if (is_mine && (lane_ & 3) == 0) {
      p_.part_m[index] = half == 0 ? max_[0] : max_[1];
      p_.part_l[index] = half == 0 ? sum_[0] : sum_[1];
    }
  }
}

template <class Tile>
__device__ __forceinline__ float Consumer<Tile>::join_states(int row, float mine) {
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
  if (token_group_ == 0 && token_group == 0) {
    const int of_tile = row_group_ * 16 + row;
    if (task_.is_direct != 0)
      l = finished_sum(p_, sink_of(p_, task_.kv_head * group_ + of_tile - by_group(of_tile) * group_), m, l);
    shared_.row_states[of_tile] = {m, l};
  }
  return exp2_approx(mine - base);
}

template <class Tile>
__device__ __forceinline__ int Consumer<Tile>::warp_of(int token_group, int row_group) const {
  return (token_group << row_shift_) + row_group;
}

template <class Tile>
template <class Stage>
__device__ __forceinline__ void Consumer<Tile>::put_columns(int column0, float factor, int half) {
  float* to = shared_.scratch + (warp_ * 8 + (lane_ >> 2)) * Tile::kColumnStride;
#pragma unroll
  for (int c = 0; c < Tile::kColumns / 16; ++c) {
    const float(&low)[4] = out_[2 * (column0 / 16 + c)];
    const float(&high)[4] = out_[2 * (column0 / 16 + c) + 1];
    const float x[4] = {half == 0 ? low[0] : low[2], half == 0 ? low[1] : low[3], half == 0 ? high[0] : high[2],
                        half == 0 ? high[1] : high[3]};
    if constexpr (Stage::kIsFp8) {
      *reinterpret_cast<float4*>(to + 16 * c + (lane_ & 3) * 4) = {x[0] * factor, x[2] * factor, x[1] * factor, x[3] * factor};
    } else {
      *reinterpret_cast<float2*>(to + 16 * c + (lane_ & 3) * 2) = {x[0] * factor, x[1] * factor};
      *reinterpret_cast<float2*>(to + 16 * c + 8 + (lane_ & 3) * 2) = {x[2] * factor, x[3] * factor};
    }
  }
}

template <class Tile>
template <int kStride>
__device__ __forceinline__ void Consumer<Tile>::write_rows(int column0, int half) {
  constexpr int kVectors = Tile::kColumns / 4;
  const int n_vectors = row_shift_ == 0 ? min(8, n_rows_ - half * 8) * kVectors : 8 * kVectors << row_shift_;
#pragma unroll 1
  for (int i = thread_; i < n_vectors; i += kConsumerThreads) {
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
        parts[t] = *reinterpret_cast<const float4*>(shared_.scratch + (warp_of(t, row_group) * 8 + row8) * kStride +
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
      store_output<typename Tile::Element>(
          p_, (static_cast<std::int64_t>(task_.first_row + token_row) * p_.n_heads + head) * p_.head_dim + column, sum);
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

}  // namespace baton::cuda
