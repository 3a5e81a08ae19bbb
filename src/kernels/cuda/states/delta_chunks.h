/// The gated delta rule in chunks (arXiv:2412.06464), by multiplying 16-bit numbers on the matrix units.
///
/// Of a chunk, with G_i = the sum of the log decays up to row i, k and q raw and their factors c_i and d_i (of unit(x), and 1 /
/// sqrt(key_dim) in d), and S the state before it:
///
///     L_ij = beta_i exp(G_i - G_j) c_i c_j (k_i . k_j)  for j < i, else 0        T = (I + L)^-1 diag(beta)
///     A_ij = exp(G_i - G_j) d_i c_j (q_i . k_j)  for j <= i, else 0
///     U = T (V - diag(exp(G) c) K S)                                             O = diag(exp(G) d) Q S + A U
///     S' = exp(G_last) S + K^T diag(exp(G_last - G) c) U
///
/// T and A do not need S: delta_prepare.cu computes them for all chunks at once, delta_scan.cu the rest, chunk after chunk. Queries,
/// keys and values are bf16, so K and Q multiply as they are. Every other operand is the sum of kDeltaParts bf16 numbers, which has
/// the bits of f32; where two such sums are multiplied, what is below the last of them is left out.
#pragma once

#include <cstddef>
#include <cstdint>

#include <vector_types.h>

#include "kernels/batch.h"
#include "kernels/cuda/states/delta_rule.h"
#include "kernels/ops.h"

namespace baton::cuda {

inline constexpr int kDeltaKeyDim = 128;    ///< the only one in chunks
inline constexpr int kDeltaValueStep = 32;  ///< value_dim is a multiple of it
inline constexpr int kDeltaParts = 3;
/// Runs of more rows are computed in chunks, the others row by row.
inline constexpr int kMostStepRows = 32;

/// Chunks are cut into tiles of 16 rows. Matrices below the diagonal have the tiles (m, k) with k <= m.
inline constexpr int kChunkTiles = kStateChunk / 16;
inline constexpr int kTrianglePlaces = kChunkTiles * (kChunkTiles + 1) / 2;
constexpr int triangle_place(int m, int k) { return m * (m + 1) / 2 + k; }

/// What the second kernel needs of a head's chunk. Tiles are in the order of operand A of mma.m16n8k16, 16 bytes a lane.
struct ChunkMatrices {
  using Triangle = uint4[kTrianglePlaces][kDeltaParts][32];
  Triangle t;
  Triangle a;
  float of_keys[kStateChunk];     ///< exp(G) c
  float of_queries[kStateChunk];  ///< exp(G) d
  float to_end[kStateChunk];      ///< exp(G_last - G) c
  float decay;                    ///< exp(G_last)
};

/// Chunks of long runs, counted over all runs of the step, that one pair of launches computes.
struct ChunkRange {
  int first;
  int n;
};

/// Chunks of a run: at multiples of kStateChunk positions.
constexpr int chunks_of(const StateRun& run) {
  return run.n_rows > kMostStepRows ? (run.position % kStateChunk + run.n_rows + kStateChunk - 1) / kStateChunk : 0;
}
/// The first row of a chunk, counted from the run's first. That of the chunk after the last may be beyond the run.
constexpr int first_row_of(const StateRun& run, int chunk) {
  return chunk == 0 ? 0 : chunk * kStateChunk - run.position % kStateChunk;
}

/// Into matrices[(chunk - range.first) * n_heads + head].
void launch_delta_prepare(const Device& device, const DeltaRuleParams& params, ChunkRange range, ChunkMatrices* matrices);
/// `n_runs`: the most runs of a step. A range that does not begin with a run's first chunk continues from the slot that the run
/// writes.
void launch_delta_scan(const Device& device, const DeltaRuleParams& params, ChunkRange range, const ChunkMatrices* matrices,
                       std::int64_t n_runs);

/// Whether blocks of the second kernel fit into the device's shared memory.
bool runs_delta_scan(const Device& device);

}  // namespace baton::cuda
