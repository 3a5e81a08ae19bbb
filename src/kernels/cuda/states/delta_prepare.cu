/// The gated delta rule in chunks, first kernel: the matrices T and A of all chunks (delta_chunks.h). A block computes those of one
/// head in one chunk, a warp 16 rows of them.
#include "kernels/cuda/states/delta_chunks.h"

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/states/delta_rows.cuh"
#include "kernels/cuda/states/delta_tiles.cuh"
#include "kernels/cuda/states/runs.cuh"

namespace baton::cuda {
namespace {

constexpr int kPrepareThreads = 32 * kChunkTiles;
constexpr int kStride = kStateChunk + 4;  ///< of a matrix in f32, in shared memory
static_assert(kStateChunk * kStride * 4 == kKeyTileBytes, "L takes the place of the keys, and T that of the queries");
using Matrix = float[kStateChunk][kStride];

struct ChunkShared {
  alignas(16) std::byte keys[kKeyTileBytes];
  alignas(16) std::byte queries[kKeyTileBytes];
  /// G as a sum of two, because differences of sums that are large count.
  float high[kStateChunk];
  float low[kStateChunk];
  float beta[kStateChunk];
  float of_keys[kStateChunk];     ///< c
  float of_queries[kStateChunk];  ///< d

  __device__ float decay(int from, int to) const { return expf((high[to] - high[from]) + (low[to] - low[from])); }
};

/// Gates of the chunk's rows, by one warp; rows from n_rows on have beta 0 and no decay.
__device__ void set_gates(const DeltaRuleParams& p, const DeltaHead& head, std::int64_t first_row, int n_rows, ChunkShared& s) {
  constexpr float kZeroDecay = -128;  // exp is 0 in f32
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  double own[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = 2 * lane + i;
    const bool is_row = row < n_rows;
    const float log_decay = is_row ? head.log_decay(p.gates[head.gate(first_row + row) + p.n_heads]) : 0;
    own[i] = log_decay < kZeroDecay ? kZeroDecay : log_decay;
    s.beta[row] = is_row ? head.beta(p.gates[head.gate(first_row + row)]) : 0;
  }
  double sum = own[0] + own[1];
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const double other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += other;
  }
  const double sums[2] = {sum - own[1], sum};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    s.high[2 * lane + i] = static_cast<float>(sums[i]);
    s.low[2 * lane + i] = static_cast<float>(sums[i] - static_cast<float>(sums[i]));
  }
}

/// unit_factor of a row of keys or queries, of which a thread reads half.
__device__ float factor_of_row(const std::byte* rows) {
  constexpr int kHalfBytes = kDeltaKeyDim;
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
  return unit_factor(squares + __shfl_xor_sync(0xffffffffu, squares, 1));
}

/// The warp's 16 rows of `rows` times the keys, on and below the diagonal.
__device__ __forceinline__ void multiply_by_keys(std::uint32_t rows, std::uint32_t keys, int m,
                                                 float (&c)[2 * kChunkTiles][4]) {
#pragma unroll
  for (int step = 0; step < kDeltaKeyDim / 16; ++step) {
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

/// The inverses of I + L for the blocks of 16 x 16 on the diagonal: a thread has a column.
__device__ void invert_diagonal(const Matrix& l, Matrix& t) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= kStateChunk) return;
  const int first = thread / 16 * 16;
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float sum = i == thread % 16 ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < i; ++j) sum = fmaf(-l[first + i][first + j], x[j], sum);
    x[i] = sum;
    t[first + i][thread] = sum;
  }
}

/// sum[c] += a[row][k] b[k][column + c] over the 16 columns k of a block.
__device__ __forceinline__ void add_block_product(const float* a, const float* b, float (&sum)[8]) {
#pragma unroll
  for (int k = 0; k < 16; ++k) {
    const float4 low = *reinterpret_cast<const float4*>(b + k * kStride);
    const float4 high = *reinterpret_cast<const float4*>(b + k * kStride + 4);
    const float of_b[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int c = 0; c < 8; ++c) sum[c] = fmaf(a[k], of_b[c], sum[c]);
  }
}

/// The block (m, n) below the diagonal, after those nearer to it: T_mn = -T_mm sum over n <= i < m of L_mi T_in. By one warp.
__device__ void invert_block(const Matrix& l, Matrix& t, int m, int n) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int row = 16 * m + lane / 2;
  const int column = 16 * n + lane % 2 * 8;
  float sum[8] = {};
  for (int i = n; i < m; ++i) add_block_product(&l[row][16 * i], &t[16 * i][column], sum);
  const auto write = [&] {
    __syncwarp();
#pragma unroll
    for (int c = 0; c < 8; ++c) t[row][column + c] = sum[c];
    __syncwarp();
  };
  write();
  float product[8] = {};
  add_block_product(&t[row][16 * m], &t[16 * m][column], product);
#pragma unroll
  for (int c = 0; c < 8; ++c) sum[c] = -product[c];
  write();
}

__global__ void __launch_bounds__(kPrepareThreads)
    delta_prepare_kernel(const __grid_constant__ DeltaRuleParams p, ChunkRange range, ChunkMatrices* matrices) {
  extern __shared__ __align__(16) std::byte shared[];
  ChunkShared& s = *reinterpret_cast<ChunkShared*>(shared);
  let_next_kernel_start();
  const Runs runs = runs_of(p.step);
  const RunPart found = find_part(runs, range.first + static_cast<int>(blockIdx.y), chunks_of);
  wait_for_kernel_before();
  if (found.run < 0) return;
  const StateRun run = runs.first[found.run];
  const int begin = first_row_of(run, found.part);
  const int n_rows = min(first_row_of(run, found.part + 1), run.n_rows) - begin;
  const std::int64_t first_row = run.first_row + begin;
  const int head_index = static_cast<int>(blockIdx.x);
  const DeltaHead head(p, head_index);
  const auto* qkv = static_cast<const __nv_bfloat16*>(p.qkv);
  const std::int64_t width = head.query(1) - head.query(0);
  copy_key_rows<kPrepareThreads>(shared_address(s.keys), qkv + head.key(first_row), width, n_rows);
  copy_key_rows<kPrepareThreads>(shared_address(s.queries), qkv + head.query(first_row), width, n_rows);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (warp == 0) set_gates(p, head, first_row, n_rows, s);
  wait_for_copies();
  __syncthreads();
  const float key_factor = factor_of_row(s.keys);
  const float query_factor = factor_of_row(s.queries) * p.q_factor;
  if (lane % 2 == 0) {
    s.of_keys[threadIdx.x / 2] = key_factor;
    s.of_queries[threadIdx.x / 2] = query_factor;
  }
  float of_keys[2 * kChunkTiles][4] = {};
  float of_queries[2 * kChunkTiles][4] = {};
  multiply_by_keys(shared_address(s.keys), shared_address(s.keys), warp, of_keys);
  multiply_by_keys(shared_address(s.queries), shared_address(s.keys), warp, of_queries);
  own_accumulators(of_keys);
  own_accumulators(of_queries);
  __syncthreads();  // from here on L and T take the place of keys and queries

  Matrix& l = *reinterpret_cast<Matrix*>(s.keys);
  Matrix& t = *reinterpret_cast<Matrix*>(s.queries);
#pragma unroll
  for (int n = 0; n < 2 * kChunkTiles; ++n) {
    if (n / 2 > warp) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 16 * warp + lane / 4 + i / 2 * 8;
      const int column = 8 * n + lane % 4 * 2 + i % 2;
      const float decay = column <= row ? s.decay(column, row) * s.of_keys[column] : 0;
      of_queries[n][i] *= decay * s.of_queries[row];
      l[row][column] = column < row ? of_keys[n][i] * decay * s.of_keys[row] * s.beta[row] : 0;
    }
  }
  ChunkMatrices& to = matrices[static_cast<std::int64_t>(blockIdx.y) * p.n_heads + head_index];
#pragma unroll
  for (int k = 0; k < kChunkTiles; ++k)
    if (k <= warp) store_fragments(of_queries[2 * k], of_queries[2 * k + 1], to.a[triangle_place(warp, k)]);
  if (threadIdx.x < kStateChunk) {
    const int row = static_cast<int>(threadIdx.x);
    const float decay = expf(s.high[row]);
    to.of_keys[row] = decay * s.of_keys[row];
    to.of_queries[row] = decay * s.of_queries[row];
    to.to_end[row] = s.decay(row, kStateChunk - 1) * s.of_keys[row];
    if (row == kStateChunk - 1) to.decay = decay;
  }
  __syncthreads();
  invert_diagonal(l, t);
  __syncthreads();
  for (int distance = 1; distance < kChunkTiles; ++distance) {
    if (warp + distance < kChunkTiles) invert_block(l, t, warp + distance, warp);
    __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < kChunkTiles; ++k) {
    if (k > warp) continue;
    float halves[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = 16 * k + 8 * half + lane % 4 * 2 + i % 2;
        halves[half][i] = t[16 * warp + lane / 4 + i / 2 * 8][column] * s.beta[column];
      }
    store_fragments(halves[0], halves[1], to.t[triangle_place(warp, k)]);
  }
}

}  // namespace

void launch_delta_prepare(const Device& device, const DeltaRuleParams& params, ChunkRange range, ChunkMatrices* matrices) {
  prefer_shared_memory(delta_prepare_kernel);
  launch_overlapped(device, delta_prepare_kernel, dim3(static_cast<unsigned>(params.n_heads), static_cast<unsigned>(range.n)),
                    kPrepareThreads, static_cast<int>(sizeof(ChunkShared)), "gated_delta_rule", params, range, matrices);
}

}  // namespace baton::cuda
