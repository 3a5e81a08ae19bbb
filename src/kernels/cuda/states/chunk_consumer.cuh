/// The arithmetic of the scan over chunks: a warpgroup has 64 columns of a head's values, transposed, so that every left operand of
/// a matmul is what the warpgroup computed before, in registers. The delta rule (delta_rule.h):
///
///     P = S^T K^T     R = V^T - P diag(exp(G) c)     U = R T^T     S'^T = exp(G_last) S^T + U diag(exp(G_last - G) c) K
///     O^T = S^T Q^T diag(exp(G) d) + U A^T
///
/// Mamba-2 (mamba2_rule.h) is the same with U = V^T.
///
/// A row of these matrices, a column of the values, is multiplied by a power of two that brings its largest number in the state
/// and in what the chunk writes to 2^5: so its f16 parts have 22 bits, and no sum of a chunk, of at most 64 times that, overflows.
///
/// With V = 0 and the identity as the first state, the state after some chunks is their map (chunk_scan.h): its columns are those of
/// the identity.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/elements.cuh"
#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/states/chunk_matmuls.cuh"
#include "kernels/cuda/states/chunk_scan.h"

namespace baton::cuda {

/// What a block has of one chunk in shared memory.
struct ScanStage {
  std::uint32_t keys;    ///< two tiles, then two of queries
  std::uint32_t t;       ///< the delta rule's, in parts
  std::uint32_t a;       ///< in parts
  std::uint32_t values;  ///< a tile of bf16: the warpgroup's columns
  const ChunkFactors* factors;
};

/// By ByWgmma or ByMma. Without outputs: only the delta rule.
template <ChunkRule kRule, class Matmuls, bool kHasOutputs>
class ScanConsumer {
 public:
  /// The state of 64 columns: the lane has rows 2 (lane % 4) and one further of each 8, of columns column() and 8 further.
  /// `matrix` [key_dim, value_dim], f32 or bf16, begins at the first of them.
  template <class T>
  __device__ __forceinline__ void load_state(const T* matrix, int value_dim) {
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) state_[n][e] = to_f32(matrix[(8 * n + pair_ + e % 2) * value_dim + column_ + e / 2 * 8]);
  }
  __device__ __forceinline__ void clear_state() {
#pragma unroll
    for (auto& of_rows : state_)
#pragma unroll
      for (float& x : of_rows) x = 0;
  }
  /// That of columns `first_column` to first_column + 63 of the identity times x.
  __device__ __forceinline__ void load_identity(int first_column, float x) {
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) state_[n][e] = 8 * n + pair_ + e % 2 == first_column + column_ + e / 2 * 8 ? x : 0;
  }
  /// To a matrix whose rows and columns are so many numbers apart, and that begins at the first of the columns. Rounds to nearest even
  /// if T is bf16.
  template <class T>
  __device__ __forceinline__ void store_state(T* matrix, int row_stride, int column_stride) const {
    const float unscaled[2] = {1 / scale_[0], 1 / scale_[1]};
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        matrix[(8 * n + pair_ + e % 2) * row_stride + (column_ + e / 2 * 8) * column_stride] =
            from_f32<T>(state_[n][e] * unscaled[e / 2]);
  }

  /// Computes a chunk, calls leave() when it has read the stage, and then store(out) for the lane's outputs: out[n][2 half + i] is
  /// of column column() + 8 half, row 8 n + pair() + i.
  template <class Leave, class Store>
  __device__ __forceinline__ void chunk(const ScanStage& arrived, float skip, Leave&& leave, Store&& store) {
    // Matrix loads are not volatile: without this, some of a stage that has the same place in every chunk would leave the loop.
    const ScanStage stage{Matmuls::current(arrived.keys), Matmuls::current(arrived.t), Matmuls::current(arrived.a),
                          arrived.values, arrived.factors};
    const float2 rescale = rescale_by(stage);
    const float factor[2] = {rescale.x, rescale.y};
    float u[8][4];
    float out[8][4];
    if constexpr (kRule == ChunkRule::delta)
      begin_delta(stage, factor, u, out);
    else
      begin_mamba2(stage, factor, u, out);
    multiply_rows_by(stage.factors->to_end, u);
    const float one[2] = {1, 1};
    Fragments to_end[4];
#pragma unroll
    for (int step = 0; step < 4; ++step) split_fragment(u[2 * step], u[2 * step + 1], one, to_end[step]);
    Matmuls::begin();
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
      for (int part = 0; part < kOperandParts; ++part) Matmuls::by_columns(state_, to_end[step][part], stage.keys, step);
    Matmuls::end();
    Matmuls::template wait<0>();
    own_accumulators(state_);
    if constexpr (kHasOutputs) {
      own_accumulators(out);
      finish_outputs(stage, skip, out);
    }
    leave();
    if constexpr (kHasOutputs) store(out);
  }
  __device__ __forceinline__ int pair() const { return pair_; }
  __device__ __forceinline__ int column() const { return column_; }

 private:
  /// U, and the outputs begun: what is left of them are matmuls under way.
  __device__ __forceinline__ void begin_delta(const ScanStage& stage, const float (&factor)[2], float (&u)[8][4],
                                              float (&out)[8][4]) {
    const float one[2] = {1, 1};
    {
      float by_keys[8][4];
      {
        Fragments state[8];
        if constexpr (kHasOutputs) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            split_state(factor, half, state);
            multiply_state(state, half, stage.keys, by_keys);
            multiply_state(state, half, stage.keys + 2 * sizeof(ChunkTile), out);
          }
        } else {  // were the second half split beside a matmul, the compiler would let each matmul wait for the one before
#pragma unroll
          for (int half = 0; half < 2; ++half) split_state(factor, half, state);
#pragma unroll
          for (int half = 0; half < 2; ++half) multiply_state(state, half, stage.keys, by_keys);
        }
        Matmuls::template wait<kHasOutputs ? 1 : 0>();
        own_accumulators(by_keys);
        subtract_from_values(stage, by_keys);
        own_accumulators(by_keys);
        if constexpr (kHasOutputs) {
          Matmuls::template wait<0>();
          own_accumulators(out);
        }
      }
      Fragments inputs[4];
#pragma unroll
      for (int step = 0; step < 4; ++step) split_fragment(by_keys[2 * step], by_keys[2 * step + 1], one, inputs[step]);
      multiply_matrix(inputs, stage.t, u, false);
      decay_state(stage.factors->decay, factor);
      if constexpr (kHasOutputs) multiply_rows_by(stage.factors->of_queries, out);
      Matmuls::template wait<0>();
      own_accumulators(u);
    }
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) u[n][e] *= 1 / kTScale;
    if constexpr (kHasOutputs) {
      Fragments updates[4];
#pragma unroll
      for (int step = 0; step < 4; ++step) split_fragment(u[2 * step], u[2 * step + 1], one, updates[step]);
      multiply_matrix(updates, stage.a, out, true);
    }
  }

  __device__ __forceinline__ void begin_mamba2(const ScanStage& stage, const float (&factor)[2], float (&u)[8][4],
                                               float (&out)[8][4]) {
    {
      Fragments state[8];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        split_state(factor, half, state);
        multiply_state(state, half, stage.keys + 2 * sizeof(ChunkTile), out);
      }
      decay_state(stage.factors->decay, factor);
      for_values(stage, [&](int n, int half, int, const float2& values) {
        u[n][2 * half] = values.x * scale_[half];
        u[n][2 * half + 1] = values.y * scale_[half];
      });
      Matmuls::template wait<0>();
      own_accumulators(out);
    }
    multiply_rows_by(stage.factors->of_queries, out);
    Fragment values[4];
#pragma unroll
    for (int step = 0; step < 4; ++step) round_fragment(u[2 * step], u[2 * step + 1], values[step]);
    Matmuls::begin();
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
      for (int part = 0; part < kOperandParts; ++part)
        Matmuls::by_rows(out, values[step], stage.a + part * sizeof(ChunkTile), step, true);
    Matmuls::end();
  }

  __device__ __forceinline__ void split_state(const float (&factor)[2], int half, Fragments (&to)[8]) const {
#pragma unroll
    for (int step = 4 * half; step < 4 * half + 4; ++step)
      split_fragment(state_[2 * step], state_[2 * step + 1], factor, to[step]);
  }
  __device__ __forceinline__ void decay_state(float decay, const float (&factor)[2]) {
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) state_[n][e] *= decay * factor[e / 2];
  }

  /// Outputs without their scale, and with what skips the state.
  __device__ __forceinline__ void finish_outputs(const ScanStage& stage, float skip, float (&out)[8][4]) const {
    const float unscaled[2] = {1 / scale_[0], 1 / scale_[1]};
    if constexpr (kRule == ChunkRule::delta) {
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) out[n][e] *= unscaled[e / 2] * (1 / kAScale);
    } else {
      for_values(stage, [&](int n, int half, int row, const float2& values) {
        const float2 of_rows = *reinterpret_cast<const float2*>(&stage.factors->of_outputs[row]);
        out[n][2 * half] = fmaf(skip, values.x, out[n][2 * half] * unscaled[half] * of_rows.x);
        out[n][2 * half + 1] = fmaf(skip, values.y, out[n][2 * half + 1] * unscaled[half] * of_rows.y);
      });
    }
  }

  /// Calls body(n, half, row, values) for the lane's pairs of values: of rows row = 8 n + pair() and one further.
  template <class Body>
  __device__ __forceinline__ void for_values(const ScanStage& stage, Body&& body) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Fragment pairs;
      load_values(stage, i, pairs);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        body(2 * i + j / 2, j % 2, 16 * i + j / 2 * 8 + pair_,
             __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pairs[j])));
    }
  }

  /// The lane's pairs of values: of rows 16 i + pair_ and 8 further, of columns column_ and 8 further.
  __device__ __forceinline__ void load_values(const ScanStage& stage, int i, Fragment& to) const {
    const int row = 16 * i + lane_ / 16 * 8 + lane_ % 8;
    load_matrices_transposed(to, as_of_now(stage.values) + swizzled_byte(row, warp_ * 2 + lane_ / 8 % 2));
  }

  /// Brings the largest number of each of the lane's two columns to 2^5, but not all the way if it is below 2^-80, because the scale
  /// is a float and multiplies values; returns what the state must still be multiplied by.
  __device__ __forceinline__ float2 rescale_by(const ScanStage& stage) {
    constexpr float kSmallest = 0x1p-80f;
    float largest[2] = {kSmallest * scale_[0], kSmallest * scale_[1]};
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) largest[e / 2] = fmaxf(largest[e / 2], fabsf(state_[n][e]));
    __nv_bfloat162 of_values[2] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Fragment pairs;
      load_values(stage, i, pairs);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        of_values[j % 2] = __hmax2(of_values[j % 2], __habs2(*reinterpret_cast<const __nv_bfloat162*>(&pairs[j])));
    }
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 values = __bfloat1622float2(of_values[half]);
      const float of_chunk = fmaxf(values.x, values.y) * scale_[half];
      largest[half] = fmaxf(largest[half], of_chunk);
      if constexpr (kRule == ChunkRule::mamba2) largest[half] = fmaxf(largest[half], of_chunk * stage.factors->largest_to_end);
      largest[half] = fmaxf(largest[half], __shfl_xor_sync(0xffffffffu, largest[half], 1));
      largest[half] = fmaxf(largest[half], __shfl_xor_sync(0xffffffffu, largest[half], 2));
      constexpr int kBias = 127;
      constexpr int kTarget = 5;
      const int exponent = static_cast<int>(__float_as_uint(largest[half]) >> 23);
      const int shift = exponent == 0 ? 0 : min(max(kBias + kTarget - exponent, -126), 100);
      factor[half] = __uint_as_float(static_cast<std::uint32_t>(kBias + shift) << 23);
      scale_[half] *= factor[half];
    }
    return make_float2(factor[0], factor[1]);
  }

  /// c = or += the transpose of half the state's rows, in parts, times that of 64 rows of keys or queries.
  __device__ __forceinline__ static void multiply_state(const Fragments (&state)[8], int half, std::uint32_t rows,
                                                        float (&c)[8][4]) {
    Matmuls::begin();
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
      for (int part = 0; part < kOperandParts; ++part)
        Matmuls::by_rows(c, state[4 * half + step][part], rows + half * sizeof(ChunkTile), step, half + step + part > 0);
    Matmuls::end();
  }

  /// c = or += x times the transpose of a matrix.
  __device__ __forceinline__ static void multiply_matrix(const Fragments (&x)[4], std::uint32_t tiles, float (&c)[8][4],
                                                         bool accumulate) {
    Matmuls::begin();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      Matmuls::by_rows(c, x[step][0], tiles, step, accumulate || step > 0);
      Matmuls::by_rows(c, x[step][1], tiles, step, true);
      Matmuls::by_rows(c, x[step][0], tiles + sizeof(ChunkTile), step, true);
    }
    Matmuls::end();
  }

  /// by_keys = V^T - by_keys diag(of_keys).
  __device__ __forceinline__ void subtract_from_values(const ScanStage& stage, float (&by_keys)[8][4]) const {
    for_values(stage, [&](int n, int half, int row, const float2& values) {
      const float2 of_keys = *reinterpret_cast<const float2*>(&stage.factors->of_keys[row]);
      float* const c = &by_keys[n][2 * half];
      c[0] = fmaf(-of_keys.x, c[0], values.x * scale_[half]);
      c[1] = fmaf(-of_keys.y, c[1], values.y * scale_[half]);
    });
  }

  /// c = c diag(factors).
  __device__ __forceinline__ void multiply_rows_by(const float (&factors)[kStateChunk], float (&c)[8][4]) const {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 of_rows = *reinterpret_cast<const float2*>(&factors[8 * n + pair_]);
#pragma unroll
      for (int e = 0; e < 4; ++e) c[n][e] *= e % 2 == 0 ? of_rows.x : of_rows.y;
    }
  }

  int lane_ = static_cast<int>(threadIdx.x) % kWarpSize;
  int warp_ = static_cast<int>(threadIdx.x) / kWarpSize % 4;  ///< of the warpgroup
  int pair_ = lane_ % 4 * 2;                                  ///< first of two neighbours in each group of eight
  int column_ = warp_ * 16 + lane_ / 4;                       ///< of the warpgroup's columns
  float state_[16][4];
  float scale_[2] = {1, 1};  ///< what the state is multiplied by
};

}  // namespace baton::cuda
