/// The gated delta rule on a CUDA device: which rows go to which kernels.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/states/delta_rule.h"
#include "kernels/cuda/states/state_storage.h"
#include "kernels/cuda/states/states.h"

namespace baton::cuda {
namespace {

/// Whether long runs are computed in chunks. A captured launch serves runs of any lengths, but none of many rows.
bool takes_chunks(const GatedDeltaRuleArgs& args, const StateShape& shape, std::span<std::byte> memory) {
  return !memory.empty() && shape.key_dim == kChunkKeyDim && shape.value_dim % kChunkValueStep == 0 &&
         bytes_of_chunk(shape.n_heads, static_cast<int>(args.n_key_heads)) <= memory.size() && args.qkv.dtype == DType::bf16 &&
         is_aligned(args.qkv.data, 16) && args.state.step.header->n_rows > kMostStepRows;
}

}  // namespace

std::size_t chunk_memory_bytes(const Device& device, const StateShape& shape) {
  return shape.key_dim == kChunkKeyDim && runs_chunk_scan(device) ? kChunkBytes : 0;
}

void gated_delta_rule(const Device& device, const GatedDeltaRuleArgs& args, std::span<std::byte> memory) {
  const auto& states = static_cast<const CudaStateStorage&>(*args.state.storage);
  const StateShape& shape = states.shape();
  const bool is_captured = is_capturing(device);
  const std::int64_t n_runs = most_runs(args.state, is_captured);
  if (n_runs == 0) return;
  check(is_aligned(args.out.data, 16), "gated_delta_rule: out must be aligned to 16 bytes");
  const bool has_chunks = !is_captured && takes_chunks(args, shape, memory);
  const DeltaRuleParams params{.step = args.state.step.data,
                               .qkv = args.qkv.data,
                               .qkv_dtype = args.qkv.dtype,
                               .gates = reinterpret_cast<const float*>(args.gates.data),
                               .a_log = reinterpret_cast<const float*>(args.a_log.data),
                               .dt_bias = reinterpret_cast<const float*>(args.dt_bias.data),
                               .out = args.out.data,
                               .out_dtype = args.out.dtype,
                               .matrices = states.matrices(args.state.layer),
                               .kept = states.kept(args.state.layer),
                               .n_heads = shape.n_heads,
                               .n_key_heads = static_cast<int>(args.n_key_heads),
                               .key_dim = shape.key_dim,
                               .value_dim = shape.value_dim,
                               .q_factor = 1.0f / std::sqrt(static_cast<float>(shape.key_dim)),
                               .most_rows = has_chunks ? kMostStepRows : std::numeric_limits<int>::max()};
  const std::int64_t n_rows = args.state.step.header->n_rows;
  const bool has_few_rows = is_captured || has_chunks || n_rows <= kMostSweepRows * n_runs;
  if (has_few_rows && runs_delta_sweep(device, params))
    launch_delta_sweep(device, params, n_runs);
  else
    launch_delta_steps(device, params, n_runs);
  if (!has_chunks) return;
  const std::int64_t first_value = 2 * args.n_key_heads * shape.key_dim;
  const ChunkScanParams scan{.step = params.step,
                             .values = args.qkv.data + first_value * 2,
                             .values_width = args.qkv.shape[1],
                             .skip = nullptr,
                             .out = params.out,
                             .out_dtype = params.out_dtype,
                             .matrices = params.matrices,
                             .n_heads = params.n_heads,
                             .n_key_heads = params.n_key_heads,
                             .value_dim = params.value_dim};
  compute_in_chunks(
      device, ChunkRule::delta, scan, n_rows, n_runs, memory,
      [&](ChunkRange range, const ChunkOperands& operands) { launch_delta_prepare(device, params, range, operands); });
}

}  // namespace baton::cuda
