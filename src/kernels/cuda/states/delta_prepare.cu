/// The gated delta rule in chunks, first kernel: the matrices T and A of all chunks (delta_rule.h). A block computes those of one
/// head in one chunk, a warp 16 rows of them.
#include "kernels/cuda/states/delta_rule.h"

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/states/chunk_prepare.cuh"
#include "kernels/cuda/states/delta_rows.cuh"

namespace baton::cuda {
namespace {

struct ChunkShared {
  alignas(16) std::byte keys[kKeyTileBytes];
  alignas(16) std::byte queries[kKeyTileBytes];
  LogDecays decays;
  float beta[kStateChunk];
  float of_keys[kStateChunk];     ///< c
  float of_queries[kStateChunk];  ///< d
};

/// Gates of the chunk's rows, by one warp; rows from n_rows on have beta 0 and no decay.
__device__ void set_gates(const DeltaRuleParams& p, const DeltaHead& head, const ChunkPlace& chunk, ChunkShared& s) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float log_decays[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = 2 * lane + i;
    const bool is_row = row < chunk.n_rows;
    const std::int64_t gate = head.gate(chunk.first_row + row);
    log_decays[i] = is_row ? head.log_decay(p.gates[gate + p.n_heads]) : 0;
    s.beta[row] = is_row ? head.beta(p.gates[gate]) : 0;
  }
  s.decays.set(log_decays[0], log_decays[1]);
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

/// By a thread for each row.
__device__ __forceinline__ void write_factors(const ChunkShared& s, ChunkFactors& to) {
  const int row = static_cast<int>(threadIdx.x);
  const float decay = expf(s.decays.high[row]);
  const float of_key = s.of_keys[row] / row_scale(s.of_keys[row]);
  to.of_keys[row] = decay * of_key;
  to.of_queries[row] = kAScale * decay * s.of_queries[row] / row_scale(s.of_queries[row]);
  to.to_end[row] = s.decays.decay(row, kStateChunk - 1) * of_key;
  if (row == kStateChunk - 1) to.decay = decay;
}

/// `place`: of the block's chunk in the operands.
__device__ __forceinline__ void prepare_delta(const DeltaRuleParams& p, const ChunkPlace& chunk, int place,
                                              const ChunkOperands& operands, ChunkShared& s) {
  const int head_index = static_cast<int>(blockIdx.x);
  const DeltaHead head(p, head_index);
  const auto* qkv = static_cast<const __nv_bfloat16*>(p.qkv);
  const std::int64_t width = head.query(1) - head.query(0);
  copy_key_rows<kPrepareThreads>(shared_address(s.keys), qkv + head.key(chunk.first_row), width, chunk.n_rows);
  copy_key_rows<kPrepareThreads>(shared_address(s.queries), qkv + head.query(chunk.first_row), width, chunk.n_rows);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (warp == 0) set_gates(p, head, chunk, s);
  wait_for_copies();
  __syncthreads();
  const float key_factor = unit_factor(squares_of_row(s.keys));
  const float query_factor = unit_factor(squares_of_row(s.queries)) * p.q_factor;
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
  __syncthreads();
  const int value_heads = p.n_heads / p.n_key_heads;
  if (head_index % value_heads == 0) {
    ChunkKeys& to = operands.keys[static_cast<std::int64_t>(place) * p.n_key_heads + head_index / value_heads];
    write_rows(s.keys, s.of_keys, to.keys);
    write_rows(s.queries, s.of_queries, to.queries);
  }
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
      const float decay = column <= row ? s.decays.decay(column, row) * s.of_keys[column] : 0;
      of_queries[n][i] *= decay * s.of_queries[row];
      l[row][column] = column < row ? of_keys[n][i] * decay * s.of_keys[row] * s.beta[row] : 0;
    }
  }
  ChunkMatrices& to = operands.matrices[static_cast<std::int64_t>(place) * p.n_heads + head_index];
  if (threadIdx.x < kStateChunk) write_factors(s, to.factors);
  __syncthreads();
  invert_diagonal(l, t);
  __syncthreads();
  for (int distance = 1; distance < kChunkTiles; ++distance) {
    if (warp + distance < kChunkTiles) invert_block(l, t, warp + distance, warp);
    __syncthreads();
  }
  write_matrix(
      t, [&](int, int column) { return s.beta[column] * kTScale; }, to.t);
#pragma unroll
  for (int n = 0; n < 2 * kChunkTiles; ++n) {
    if (n / 2 > warp) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) l[16 * warp + lane / 4 + i / 2 * 8][8 * n + lane % 4 * 2 + i % 2] = of_queries[n][i];
  }
  __syncthreads();
  write_matrix(
      l, [](int, int) { return kAScale; }, to.a);
}

__global__ void __launch_bounds__(kPrepareThreads)
    delta_prepare_kernel(const __grid_constant__ DeltaRuleParams p, ChunkRange range,
                         const __grid_constant__ ChunkOperands operands) {
  extern __shared__ __align__(16) std::byte prepare_shared[];
  prepare_chunk(p.step, range, [&](const ChunkPlace& chunk) {
    prepare_delta(p, chunk, static_cast<int>(blockIdx.y), operands, *reinterpret_cast<ChunkShared*>(prepare_shared));
  });
}

}  // namespace

void launch_delta_prepare(const Device& device, const DeltaRuleParams& params, ChunkRange range,
                          const ChunkOperands& operands) {
  prefer_shared_memory(delta_prepare_kernel);
  launch_overlapped(device, delta_prepare_kernel, dim3(static_cast<unsigned>(params.n_heads), static_cast<unsigned>(range.n)),
                    kPrepareThreads, static_cast<int>(sizeof(ChunkShared)), "gated_delta_rule", params, range, operands);
}

}  // namespace baton::cuda
