/// The chunk kernel, a template over an instruction set (Simd) and a class that multiplies. Each instantiation has its
/// own file.
///
/// Simd provides V (a vector of f32), I (a vector of i32), kLanes, kMaxRows and kAccumulators (limits given by the
/// number of registers), and the functions used below. Everything is in an unnamed namespace, because each file
/// compiles it for another instruction set.
#pragma once

#include "kernels/cpu/attention/attention_state.h"
#include "kernels/cpu/attention/attention_tile.h"

namespace baton::cpu {
namespace {

/// Multiplication in f32: a step is one f32 of a row times a vector of f32.
template <class S>
struct F32Products {
  using Simd = S;
  static constexpr int kPerWord = 1;   // elements in a 32-bit word of the storage
  static constexpr int kRowBytes = 4;  // bytes of a row (q or weights) that a step reads
  using V = typename S::V;
  using B = typename S::V;
  static B load(const std::byte* at) { return S::load(reinterpret_cast<const float*>(at)); }
  static V step(V sum, const std::byte* row, B b) { return S::fma(S::broadcast(reinterpret_cast<const float*>(row)), b, sum); }
  static constexpr int kWeightBytes = 4;
  static constexpr int kWeightVectors = 1;  // vectors of weights stored together
  static V store_weights(std::byte* to, const V (&p)[1], V sum) {
    S::store(reinterpret_cast<float*>(to), p[0]);
    return S::add(sum, p[0]);
  }
};

/// Multiplication of bf16 values without bf16 instructions: a step is two exact products in f32, the even element
/// first.
template <class S>
struct Bf16Products {
  using Simd = S;
  static constexpr int kPerWord = 2;
  static constexpr int kRowBytes = 8;
  using V = typename S::V;
  using B = typename S::I;
  static B load(const std::byte* at) { return S::load_words(at); }
  static V step(V sum, const std::byte* row, B b) {
    const auto* pair = reinterpret_cast<const float*>(row);
    return S::fma(S::broadcast(pair + 1), S::high_halves(b), S::fma(S::broadcast(pair), S::low_halves(b), sum));
  }
  static constexpr int kWeightBytes = 4;
  static constexpr int kWeightVectors = 1;
  static V store_weights(std::byte* to, const V (&p)[1], V sum) {
    const V rounded = S::round_to_bf16(p[0]);
    S::store(reinterpret_cast<float*>(to), rounded);
    return S::add(sum, rounded);
  }
};

/// 2^x for x <= 0: the polynomial of attention_state.h. Exactly 1 at 0, 0 for -inf, NaN for NaN.
template <class S>
typename S::V exp2_vector(typename S::V x) {
  using V = typename S::V;
  x = S::max(S::set(S::kLeastExponent), x);  // with this order of operands NaN stays NaN
  const V n = S::round(x);
  const V f = S::sub(x, n);
  V p = S::set(1.5453162e-4f);
  p = S::fma(p, f, S::set(1.3390863e-3f));
  p = S::fma(p, f, S::set(9.6180825e-3f));
  p = S::fma(p, f, S::set(5.5503571e-2f));
  p = S::fma(p, f, S::set(2.4022651e-1f));
  p = S::fma(p, f, S::set(6.9314719e-1f));
  p = S::fma(p, f, S::set(1.0f));
  return S::times_power_of_two(p, n);
}

/// sums[r][c] += sum over n_steps of row r's steps times the vectors at columns[c] + step * stride. If `Fetch`,
/// prefetches for each of these vectors the one at ahead[c] + step * stride into the second-level cache.
template <class P, int R, int C, bool Fetch>
inline __attribute__((always_inline)) void multiply(typename P::V (&sums)[R][C], const std::byte* rows, std::size_t row_stride,
                                                    const std::byte* const (&columns)[C], const std::byte* const (&ahead)[C],
                                                    std::size_t stride, int n_steps) {
#pragma GCC unroll 2
  for (int step = 0; step < n_steps; ++step) {
    const std::size_t offset = static_cast<std::size_t>(step) * stride;
    typename P::B b[C];
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) {
      b[c] = P::load(columns[c] + offset);
      if constexpr (Fetch) __builtin_prefetch(ahead[c] + offset, 0, 2);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const std::byte* row = rows + static_cast<std::size_t>(r) * row_stride + static_cast<std::size_t>(step) * P::kRowBytes;
#pragma GCC unroll 16
      for (int c = 0; c < C; ++c) sums[r][c] = P::step(sums[r][c], row, b[c]);
    }
  }
}

/// Scores of R rows for C vectors of tokens, beginning with vector `first` of the chunk. The first rows of a task
/// prefetch values.
template <class P, int R, int C>
void score_block(const ChunkTask& task, int row, int first) {
  using S = typename P::Simd;
  constexpr int kPerTile = 16 / S::kLanes;
  const std::byte* columns[C];
  const std::byte* ahead[C];
#pragma GCC unroll 16
  for (int c = 0; c < C; ++c) {
    const int part = (first + c) % kPerTile * S::kLanes * 4;
    columns[c] = task.k_tiles[(first + c) / kPerTile] + part;
    ahead[c] = task.v_tiles[(first + c) / kPerTile] + part;
  }
  typename P::V sums[R][C];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) sums[r][c] = S::set(0.0f);
  const std::byte* q = task.q + static_cast<std::size_t>(row) * kQueryRowBytes;
  const int n_steps = task.head_dim / P::kPerWord;
  if (row == 0) {
    multiply<P, R, C, true>(sums, q, kQueryRowBytes, columns, ahead, 64, n_steps);
  } else {
    multiply<P, R, C, false>(sums, q, kQueryRowBytes, columns, ahead, 64, n_steps);
  }
  const typename P::V scale = S::set(task.scale);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c)
      S::store(task.scores + static_cast<std::ptrdiff_t>(row + r) * kChunkTokens + (first + c) * S::kLanes,
               S::mul(sums[r][c], scale));
}

/// Adds the values of tiles [tile, end) to o of R rows, for C vectors of dimensions from vector `first` on. Starts
/// from 0 if `fresh`.
template <class P, int R, int C>
void value_block(const ChunkTask& task, int row, int first, int tile, int end, bool fresh) {
  using S = typename P::Simd;
  constexpr std::size_t kWeightRow = kChunkTokens * 4;
  constexpr int kSteps = 16 / P::kPerWord;
  const auto stride = static_cast<std::size_t>(task.v_dim) * 4;
  float* o = task.chunk_o + static_cast<std::ptrdiff_t>(row) * task.v_dim + first * S::kLanes;
  typename P::V sums[R][C];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c)
      sums[r][c] = fresh ? S::set(0.0f) : S::load(o + static_cast<std::ptrdiff_t>(r) * task.v_dim + c * S::kLanes);
  for (; tile < end; ++tile) {
    const std::byte* columns[C];
    const std::byte* ahead[C];
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) {
      const int part = (first + c) * S::kLanes * 4;
      columns[c] = task.v_tiles[tile] + part;
      ahead[c] = task.k_ahead[tile] + part;
    }
    const std::byte* weights = task.weights + static_cast<std::size_t>(row) * kWeightRow + tile * kSteps * P::kRowBytes;
    if (row == 0) {
      multiply<P, R, C, true>(sums, weights, kWeightRow, columns, ahead, stride, kSteps);
    } else {
      multiply<P, R, C, false>(sums, weights, kWeightRow, columns, ahead, stride, kSteps);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) S::store(o + static_cast<std::ptrdiff_t>(r) * task.v_dim + c * S::kLanes, sums[r][c]);
}

/// Calls body.template operator()<C>(c) over [begin, end), with the largest C that keeps the sums of R rows in
/// registers.
template <class S, int R, int C = 8, class Body>
void for_columns(int begin, int end, const Body& body) {
  if constexpr (C > 1 && R * C > S::kAccumulators) {
    for_columns<S, R, C / 2>(begin, end, body);
  } else {
    for (; begin + C <= end; begin += C) body.template operator()<C>(begin);
    if constexpr (C > 1) for_columns<S, R, C / 2>(begin, end, body);
  }
}

/// Calls body.template operator()<R>(row) over [0, n_rows), R rows at a time.
template <class S, int R = 8, class Body>
void for_rows(int begin, int n_rows, const Body& body) {
  if constexpr (R > S::kMaxRows) {
    for_rows<S, R / 2>(begin, n_rows, body);
  } else {
    for (; begin + R <= n_rows; begin += R) body.template operator()<R>(begin);
    if constexpr (R > 1) for_rows<S, R / 2>(begin, n_rows, body);
  }
}

/// tanh(x) = (1 - e) / (1 + e) with e = exp(-2 |x|), with the sign of x. The error is about 2^-23; NaN gives NaN.
template <class S>
typename S::V tanh_vector(typename S::V x) {
  using V = typename S::V;
  const V size = S::max(x, S::sub(S::set(0.0f), x));
  const V e = exp2_vector<S>(S::mul(size, S::set(-2.88539008177792681472f)));
  return S::with_sign_of(x, S::div(S::sub(S::set(1.0f), e), S::add(S::set(1.0f), e)));
}

/// Applies the soft-cap to the scores of one row: cap tanh(score).
template <class S>
void cap_row(const ChunkTask& task, int row) {
  float* scores = task.scores + static_cast<std::ptrdiff_t>(row) * kChunkTokens;
  for (int token = task.first_tile * 16; token < task.end_tile * 16; token += S::kLanes)
    S::store(scores + token, S::mul(tanh_vector<S>(S::load(scores + token)), S::set(task.cap)));
}

/// Computes m, l and the weights exp2(score - m) of one row; masked tokens get weight 0.
template <class P>
void softmax_row(const ChunkTask& task, int row) {
  using S = typename P::Simd;
  using V = typename P::V;
  constexpr int kPerTile = 16 / S::kLanes;
  const int lo = task.lo[row];
  const int hi = task.hi[row];
  float* scores = task.scores + static_cast<std::ptrdiff_t>(row) * kChunkTokens;
  std::byte* weights = task.weights + static_cast<std::size_t>(row) * kChunkTokens * 4;
  V largest = S::set(kMinusInfinity);
  const int first = task.first_tile * kPerTile;
  const int end = task.end_tile * kPerTile;
  for (int v = first; v < end; ++v) {
    const int token = v * S::kLanes;
    V s = S::load(scores + token);
    if (token < lo || token + S::kLanes > hi) {
      s = S::keep_between(s, lo - token, hi - token);
      S::store(scores + token, s);
    }
    largest = S::max(largest, s);
  }
  const float m = S::reduce_max(largest);
  const V shift = S::set(m == kMinusInfinity ? 0.0f : m);
  constexpr int kTogether = P::kWeightVectors;
  V sum = S::set(0.0f);
  for (int v = first / kTogether * kTogether; v < end; v += kTogether) {
    V p[kTogether];
#pragma GCC unroll 2
    for (int i = 0; i < kTogether; ++i)
      p[i] =
          v + i < first || v + i >= end ? S::set(0.0f) : exp2_vector<S>(S::sub(S::load(scores + (v + i) * S::kLanes), shift));
    sum = P::store_weights(weights + v * S::kLanes * P::kWeightBytes, p, sum);
  }
  alignas(64) float lanes[S::kLanes];
  S::store(lanes, sum);
  float l = 0;
  for (const float lane : lanes) l += lane;
  task.chunk_m[row] = m;
  task.chunk_l[row] = l;
}

template <class P>
void softmax_rows(const ChunkTask& task) {
  for (int row = 0; row < task.n_rows; ++row) {
    if (task.cap > 0) cap_row<typename P::Simd>(task, row);
    softmax_row<P>(task, row);
  }
}

/// Folds the chunk's states into those of the rows.
inline void fold_rows(const ChunkTask& task) {
  for (int row = 0; row < task.n_rows; ++row)
    fold_state({task.o + static_cast<std::ptrdiff_t>(row) * kStateRow, task.m + row, task.l + row},
               task.chunk_o + static_cast<std::ptrdiff_t>(row) * task.v_dim, task.chunk_m[row], task.chunk_l[row],
               task.value_dim);
}

/// Number of tiles that all rows process before the next tiles, so that all rows but the first read them from the
/// first-level cache.
inline int tiles_of_group(const ChunkTask& task, int dim, int per_word, int max_rows) {
  if (task.n_rows <= max_rows) return kTilesOfChunk;
  constexpr int kNearBytes = 16 << 10;
  const int tiles = kNearBytes / (16 * dim * 4 / per_word);
  return tiles < 2 ? 2 : (tiles > kTilesOfChunk ? kTilesOfChunk : tiles);
}

template <class P>
void run_chunk(const ChunkTask& task) {
  using S = typename P::Simd;
  constexpr int kPerTile = 16 / S::kLanes;
  const int k_group = tiles_of_group(task, task.head_dim, P::kPerWord, S::kMaxRows);
  for (int tile = task.first_tile; tile < task.end_tile; tile += k_group) {
    const int end = tile + k_group < task.end_tile ? tile + k_group : task.end_tile;
    for_rows<S>(0, task.n_rows, [&]<int R>(int row) {
      for_columns<S, R>(tile * kPerTile, end * kPerTile, [&]<int C>(int column) { score_block<P, R, C>(task, row, column); });
    });
  }
  softmax_rows<P>(task);
  const int v_group = tiles_of_group(task, task.v_dim, P::kPerWord, S::kMaxRows);
  for (int tile = task.first_tile; tile < task.end_tile; tile += v_group) {
    const int end = tile + v_group < task.end_tile ? tile + v_group : task.end_tile;
    for_rows<S>(0, task.n_rows, [&]<int R>(int row) {
      for_columns<S, R>(0, task.v_dim / S::kLanes, [&]<int C>(int column) {
        value_block<P, R, C>(task, row, column, tile, end, tile == task.first_tile);
      });
    });
  }
  fold_rows(task);
}

}  // namespace
}  // namespace baton::cpu
