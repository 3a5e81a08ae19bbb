/// The kernels of the gated delta rule, and what they are given.
///
/// In chunks (arXiv:2412.06464): of a chunk, with G_i = the sum of the log decays up to row i, k and q raw and their factors c_i and
/// d_i (of unit(x), and 1 / sqrt(key_dim) in d), and S the state before it:
///
///     L_ij = beta_i exp(G_i - G_j) c_i c_j (k_i . k_j)  for j < i, else 0        T = (I + L)^-1 diag(beta)
///     A_ij = exp(G_i - G_j) d_i c_j (q_i . k_j)  for j <= i, else 0
///     U = T (V - diag(exp(G) c) K S)                                             O = diag(exp(G) d) Q S + A U
///     S' = exp(G_last) S + K^T diag(exp(G_last - G) c) U
///
/// T and A do not need S: delta_prepare.cu computes them, chunk_scan.cu the rest.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/states/chunk_scan.h"
#include "kernels/cuda/states/state_storage.h"

namespace baton::cuda {

struct DeltaRuleParams {
  const std::byte* step;
  const void* qkv;  ///< [rows, 2 n_key_heads key_dim + n_heads value_dim]
  DType qkv_dtype;
  const float* gates;    ///< [rows, 2 n_heads]
  const float* a_log;    ///< [n_heads]
  const float* dt_bias;  ///< [n_heads]
  void* out;             ///< [rows, n_heads, value_dim]
  DType out_dtype;
  MatricesOfLayer matrices;
  KeptRowsOfLayer kept;
  int n_heads;
  int n_key_heads;
  int key_dim;
  int value_dim;
  float q_factor;  ///< 1 / sqrt(key_dim)
  int most_rows;   ///< runs with more are another kernel's
};

/// Row by row, a block for some columns of each head of each run. `n_runs`: the most runs of a step.
void launch_delta_steps(const Device& device, const DeltaRuleParams& params, std::int64_t n_runs);
/// The same bits, by blocks that go through the heads of all runs: faster where runs have few rows.
void launch_delta_sweep(const Device& device, const DeltaRuleParams& params, std::int64_t n_runs);
bool runs_delta_sweep(const Device& device, const DeltaRuleParams& params);

void launch_delta_prepare(const Device& device, const DeltaRuleParams& params, ChunkRange range, const ChunkOperands& operands);

}  // namespace baton::cuda
