/// What the first kernels of recurrent layers in chunks share: a block computes the matrices of one head in one chunk, a warp 16 rows
/// of them.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/states/chunk_matmuls.cuh"
#include "kernels/cuda/states/runs.cuh"

namespace baton::cuda {

inline constexpr int kChunkTiles = kStateChunk / 16;  ///< blocks of 16 rows
inline constexpr int kPrepareThreads = 32 * kChunkTiles;
inline constexpr int kStride = kStateChunk + 4;  ///< of a matrix in f32, in shared memory
static_assert(kStateChunk * kStride * 4 == kKeyTileBytes, "matrices take the places of keys and queries");
using Matrix = float[kStateChunk][kStride];

/// Sums of log decays up to each row, as sums of two numbers, because differences of sums that are large count.
struct LogDecays {
  float high[kStateChunk];
  float low[kStateChunk];

  __device__ float decay(int from, int to) const { return expf((high[to] - high[from]) + (low[to] - low[from])); }

  /// By a warp, of which a lane has the log decays of rows 2 lane and 2 lane + 1.
  __device__ void set(float first, float second) {
    constexpr float kZeroDecay = -128;  // exp is 0 in f32
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const double own[2] = {first < kZeroDecay ? kZeroDecay : first, second < kZeroDecay ? kZeroDecay : second};
    double sum = own[0] + own[1];
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const double other = __shfl_up_sync(0xffffffffu, sum, distance);
      if (lane >= distance) sum += other;
    }
    const double sums[2] = {sum - own[1], sum};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      high[2 * lane + i] = static_cast<float>(sums[i]);
      low[2 * lane + i] = static_cast<float>(sums[i] - static_cast<float>(sums[i]));
    }
  }
};

/// The chunk of a block.
struct ChunkPlace {
  std::int64_t first_row;
  int n_rows;  ///< 0: there is none
};
__device__ __forceinline__ ChunkPlace find_chunk(const std::byte* step, ChunkRange range) {
  const Runs runs = runs_of(step);
  const RunPart found = find_part(runs, range.first + static_cast<int>(blockIdx.y), chunks_of);
  if (found.run < 0) return {};
  const StateRun& run = runs.first[found.run];
  const int begin = first_row_of(run, found.part);
  return {run.first_row + begin, min(first_row_of(run, found.part + 1), run.n_rows) - begin};
}

/// Calls compute(chunk) for the block's chunk, if there is one. A range that overlaps the scan before it must not end before that
/// scan, because later kernels wait for the last kernel alone; its inputs are older than both.
template <class Compute>
__device__ __forceinline__ void prepare_chunk(const std::byte* step, ChunkRange range, Compute&& compute) {
  let_next_kernel_start();
  const ChunkPlace chunk = find_chunk(step, range);
  if (!range.overlaps) wait_for_kernel_before();
  if (chunk.n_rows > 0) compute(chunk);
  if (range.overlaps && blockIdx.x == 0 && blockIdx.y == 0) wait_for_kernel_before();
}

/// The sum of squares of a row of keys or queries, of which a thread reads half.
__device__ __forceinline__ float squares_of_row(const std::byte* rows) {
  constexpr int kHalfBytes = kChunkKeyDim;
  const int row = static_cast<int>(threadIdx.x) / 2;
  const auto* at = reinterpret_cast<const uint4*>(rows + row * kKeyRowBytes + threadIdx.x % 2 * kHalfBytes);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kHalfBytes / 16; ++i) {
    const uint4 words = at[i];
    for (const std::uint32_t pair : {words.x, words.y, words.z, words.w}) {
      const float low = __uint_as_float(pair << 16);
      const float high = __uint_as_float(pair & 0xffff0000u);
      squares = fmaf(low, low, squares);
      squares = fmaf(high, high, squares);
    }
  }
  return squares + __shfl_xor_sync(0xffffffffu, squares, 1);
}

/// The warp's 16 rows of `rows` times the keys, on and below the diagonal.
__device__ __forceinline__ void multiply_by_keys(std::uint32_t rows, std::uint32_t keys, int m,
                                                 float (&c)[2 * kChunkTiles][4]) {
#pragma unroll
  for (int step = 0; step < kChunkKeyDim / 16; ++step) {
    std::uint32_t a[4];
    load_matrices(a, left_first(rows + m * 16 * kKeyRowBytes + step * 32, kKeyRowBytes));
#pragma unroll
    for (int n = 0; n < kChunkTiles; ++n) {
      if (n > m) continue;
      std::uint32_t b[4];
      load_matrices(b, upper_first(keys + n * 16 * kKeyRowBytes + step * 32, kKeyRowBytes));
      multiply_16x8x16<__nv_bfloat16>(c[2 * n], a, b[0], b[1]);
      multiply_16x8x16<__nv_bfloat16>(c[2 * n + 1], a, b[2], b[3]);
    }
  }
}

/// What makes the norm of a row about 1; `factor` is 1 / norm.
__device__ __forceinline__ float row_scale(float factor) { return 2 * power_below(factor); }

/// Rows of keys or queries as f16 with norms of about 1.
__device__ __forceinline__ void write_rows(const std::byte* rows, const float (&factors)[kStateChunk], ChunkTile (&to)[2]) {
  constexpr int kPieces = kChunkKeyDim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kStateChunk * kPieces; i += kPrepareThreads) {
    const int row = i / kPieces;
    const int piece = i % kPieces;
    const uint4 words = *reinterpret_cast<const uint4*>(rows + row * kKeyRowBytes + piece * 16);
    const float scale = row_scale(factors[row]);
    const auto scaled = [&](std::uint32_t pair) {
      return pack_pair<__half>(__uint_as_float(pair << 16) * scale, __uint_as_float(pair & 0xffff0000u) * scale);
    };
    *reinterpret_cast<uint4*>(reinterpret_cast<std::byte*>(to[piece / 8]) + swizzled_byte(row, piece % 8)) =
        make_uint4(scaled(words.x), scaled(words.y), scaled(words.z), scaled(words.w));
  }
}

/// A matrix below the diagonal as sums of f16, its numbers multiplied by factors.
template <class FactorOf>
__device__ __forceinline__ void write_matrix(const Matrix& from, FactorOf&& factor_of, ChunkTile (&to)[kOperandParts]) {
  for (int i = static_cast<int>(threadIdx.x); i < kStateChunk * 8; i += kPrepareThreads) {
    const int row = i / 8;
    const int piece = i % 8;
    std::uint32_t pairs[4][kOperandParts] = {};
    if (piece / 2 <= row / 16) {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const int column = piece * 8 + pair * 2;
        split_pair(from[row][column] * factor_of(row, column), from[row][column + 1] * factor_of(row, column + 1), pairs[pair]);
      }
    }
#pragma unroll
    for (int part = 0; part < kOperandParts; ++part)
      *reinterpret_cast<uint4*>(reinterpret_cast<std::byte*>(to[part]) + swizzled_byte(row, piece)) =
          make_uint4(pairs[0][part], pairs[1][part], pairs[2][part], pairs[3][part]);
  }
}

}  // namespace baton::cuda
