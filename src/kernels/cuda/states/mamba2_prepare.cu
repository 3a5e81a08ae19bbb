/// Mamba-2 in chunks, first kernel: the matrices A of all chunks (mamba2_rule.h).
#include "kernels/cuda/states/mamba2_rule.h"

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/rows/chunks.cuh"
#include "kernels/cuda/states/chunk_prepare.cuh"
#include "kernels/cuda/states/mamba2_rows.cuh"

namespace baton::cuda {
namespace {

struct Mamba2ChunkShared {
  alignas(16) std::byte keys[kKeyTileBytes];     ///< B; then A takes its place
  alignas(16) std::byte queries[kKeyTileBytes];  ///< C
  LogDecays decays;
  float step[kStateChunk];        ///< t
  float of_keys[kStateChunk];     ///< 1 / |B_i|
  float of_queries[kStateChunk];  ///< 1 / |C_i|
  float largest;                  ///< of |B_i| t_i
  float largest_to_end;
};

/// Time steps and decays of the chunk's rows, by one warp; rows from n_rows on have step 0 and no decay.
__device__ void set_steps(const Mamba2Params& p, int head, const ChunkPlace& chunk, Mamba2ChunkShared& s) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const Mamba2Gates gates(p, head);
  float log_decays[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = 2 * lane + i;
    const float step = row < chunk.n_rows ? gates.step(load(p.dt, p.dt_dtype, gates.index(p, chunk.first_row + row))) : 0;
    s.step[row] = step;
    log_decays[i] = gates.log_decay(step);
  }
  s.decays.set(log_decays[0], log_decays[1]);
}

__device__ __forceinline__ float warp_largest(float x) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
  return x;
}

/// 1 / the norm of the thread's row, within bounds.
__device__ __forceinline__ float inverse_norm(float squares) { return rsqrtf(fminf(fmaxf(squares, 1e-30f), 1e30f)); }

/// The scale of A's row: a power of two that brings the largest number that it may have to 2^12.
__device__ __forceinline__ float output_scale(const Mamba2ChunkShared& s, int row) {
  const float bound = fmaxf(s.largest / s.of_queries[row], 1e-20f);
  return static_cast<float>(1 << 12) * power_below(1 / bound);
}

/// By warp 0, of whose lanes each has two rows.
__device__ __forceinline__ void write_factors(Mamba2ChunkShared& s, ChunkFactors& to) {
  const int lane = static_cast<int>(threadIdx.x);
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) largest = fmaxf(largest, s.step[2 * lane + i] / s.of_keys[2 * lane + i]);
  largest = warp_largest(largest);
  if (lane == 0) s.largest = largest;
  __syncwarp();
  float largest_to_end = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = 2 * lane + i;
    const float scale = output_scale(s, row);
    const float to_end = s.decays.decay(row, kStateChunk - 1) * s.step[row] / row_scale(s.of_keys[row]);
    largest_to_end = fmaxf(largest_to_end, to_end);
    to.to_end[row] = to_end;
    to.of_queries[row] = expf(s.decays.high[row]) * scale / row_scale(s.of_queries[row]);
    to.of_outputs[row] = 1 / scale;
  }
  largest_to_end = warp_largest(largest_to_end);
  if (lane != 0) return;
  to.largest_to_end = largest_to_end;
  to.decay = expf(s.decays.high[kStateChunk - 1]);
}

/// `place`: of the block's chunk in the operands.
__device__ __forceinline__ void prepare_mamba2(const Mamba2Params& p, const ChunkPlace& chunk, int place,
                                               const ChunkOperands& operands, Mamba2ChunkShared& s) {
  const int head = static_cast<int>(blockIdx.x);
  const int heads = p.n_heads / p.n_groups;  // of a group
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const Mamba2Row row(p, chunk.first_row);
  const auto* xbc = static_cast<const __nv_bfloat16*>(p.xbc);
  copy_key_rows<kPrepareThreads>(shared_address(s.keys), xbc + row.b(head / heads), row.width(), chunk.n_rows);
  copy_key_rows<kPrepareThreads>(shared_address(s.queries), xbc + row.c(head / heads), row.width(), chunk.n_rows);
  if (warp == 0) set_steps(p, head, chunk, s);
  wait_for_copies();
  __syncthreads();
  const float of_key = inverse_norm(squares_of_row(s.keys));
  const float of_query = inverse_norm(squares_of_row(s.queries));
  if (lane % 2 == 0) {
    s.of_keys[threadIdx.x / 2] = of_key;
    s.of_queries[threadIdx.x / 2] = of_query;
  }
  float a[2 * kChunkTiles][4] = {};
  multiply_by_keys(shared_address(s.queries), shared_address(s.keys), warp, a);
  own_accumulators(a);
  __syncthreads();
  ChunkMatrices& to = operands.matrices[static_cast<std::int64_t>(place) * p.n_heads + head];
  if (warp == 0) write_factors(s, to.factors);
  if (head % heads == 0) {
    ChunkKeys& to_keys = operands.keys[static_cast<std::int64_t>(place) * p.n_groups + head / heads];
    write_rows(s.keys, s.of_keys, to_keys.keys);
    write_rows(s.queries, s.of_queries, to_keys.queries);
  }
  __syncthreads();
  Matrix& matrix = *reinterpret_cast<Matrix*>(s.keys);
#pragma unroll
  for (int n = 0; n < 2 * kChunkTiles; ++n) {
    if (n / 2 > warp) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = 16 * warp + lane / 4 + i / 2 * 8;
      const int column = 8 * n + lane % 4 * 2 + i % 2;
      matrix[r][column] = column <= r ? a[n][i] * s.decays.decay(column, r) * s.step[column] : 0;
    }
  }
  __syncthreads();
  write_matrix(
      matrix, [&](int r, int) { return output_scale(s, r); }, to.a);
}

__global__ void __launch_bounds__(kPrepareThreads)
    mamba2_prepare_kernel(const __grid_constant__ Mamba2Params p, ChunkRange range,
                          const __grid_constant__ ChunkOperands operands) {
  extern __shared__ __align__(16) std::byte mamba2_shared[];
  prepare_chunk(p.step, range, [&](const ChunkPlace& chunk) {
    prepare_mamba2(p, chunk, static_cast<int>(blockIdx.y), operands, *reinterpret_cast<Mamba2ChunkShared*>(mamba2_shared));
  });
}

}  // namespace

void launch_mamba2_prepare(const Device& device, const Mamba2Params& params, ChunkRange range, const ChunkOperands& operands) {
  prefer_shared_memory(mamba2_prepare_kernel);
  launch_overlapped(device, mamba2_prepare_kernel, dim3(static_cast<unsigned>(params.n_heads), static_cast<unsigned>(range.n)),
                    kPrepareThreads, static_cast<int>(sizeof(Mamba2ChunkShared)), "mamba2_scan", params, range, operands);
}

}  // namespace baton::cuda
