/// The kernels of the gated delta rule, and what they are given.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "kernels/cuda/device/device.h"
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
  float* matrices;  ///< [n_heads, key_dim, value_dim] of slot 0
  std::int64_t slot_stride;
  KeptRowsOfLayer kept;
  int n_heads;
  int n_key_heads;
  int key_dim;
  int value_dim;
  float q_factor;   ///< 1 / sqrt(key_dim)
  int most_rows;    ///< runs with more are another kernel's
  bool may_choose;  ///< the order of sums may depend on the number of runs
};

/// Row by row. `n_runs`: the most runs of a step.
void launch_delta_steps(const Device& device, const DeltaRuleParams& params, std::int64_t n_runs);

}  // namespace baton::cuda
