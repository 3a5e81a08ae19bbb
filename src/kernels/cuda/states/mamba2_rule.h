/// The kernels of Mamba-2, and what they are given.
///
/// Of a chunk, with G_i = the sum of the log decays up to row i, t_i the time steps, and S the state before it:
///
///     A_ij = exp(G_i - G_j) t_j (C_i . B_j)  for j <= i, else 0
///     O = diag(exp(G)) C S + A X + skip X     S' = exp(G_last) S + B^T diag(exp(G_last - G) t) X
///
/// mamba2_prepare.cu computes A, chunk_scan.cu the rest; the rows of B are its keys, those of C its queries.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "kernels/cuda/states/chunk_scan.h"
#include "kernels/cuda/states/state_storage.h"

namespace baton::cuda {

struct Mamba2Params {
  const std::byte* step;
  const void* xbc;
  DType xbc_dtype;
  const void* dt;
  DType dt_dtype;
  std::int64_t dt_columns;
  std::int64_t first_dt;
  const float* a_log;
  const float* dt_bias;
  const float* skip;
  MatricesOfLayer matrices;
  KeptRowsOfLayer kept;
  void* out;
  DType out_dtype;
  int n_heads;
  int n_groups;
  int key_dim;
  int value_dim;
  int most_rows;  ///< runs with more are another kernel's
};

/// Row by row, the bits of mamba2_scan.cu: faster where runs have few rows. `n_runs`: the most runs of a step.
void launch_mamba2_sweep(const Device& device, const Mamba2Params& params, std::int64_t n_runs);
bool runs_mamba2_sweep(const Device& device, const Mamba2Params& params);

void launch_mamba2_prepare(const Device& device, const Mamba2Params& params, ChunkRange range, const ChunkOperands& operands);

}  // namespace baton::cuda
