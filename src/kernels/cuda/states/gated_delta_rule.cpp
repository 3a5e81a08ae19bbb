/// The gated delta rule on a CUDA device: which rows go to which kernels.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cuda/device/alignment.h"
#include "kernels/cuda/states/delta_chunks.h"
#include "kernels/cuda/states/delta_rule.h"
#include "kernels/cuda/states/state_storage.h"
#include "kernels/cuda/states/states.h"

namespace baton::cuda {
namespace {

/// Chunks of heads that have their matrices in memory at once: 1024 rows of 128 heads, or more rows of fewer.
constexpr int kChunkMatrices = 2048;

/// Whether long runs are computed in chunks. A captured launch serves runs of any lengths, but none of many rows.
bool takes_chunks(const GatedDeltaRuleArgs& args, const StateShape& shape, std::span<std::byte> memory) {
  return !memory.empty() && shape.key_dim == kDeltaKeyDim && shape.value_dim % kDeltaValueStep == 0 &&
         shape.n_heads <= kChunkMatrices && args.qkv.dtype == DType::bf16 && is_aligned(args.qkv.data, 16) &&
         args.state.step.header->n_rows > kMostStepRows;
}

}  // namespace

std::size_t delta_memory_bytes(const Device& device, const StateShape& shape) {
  return shape.key_dim == kDeltaKeyDim && runs_delta_scan(device) ? kChunkMatrices * sizeof(ChunkMatrices) : 0;
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
                               .slot_stride = states.slot_stride(),
                               .kept = states.kept(args.state.layer),
                               .n_heads = shape.n_heads,
                               .n_key_heads = static_cast<int>(args.n_key_heads),
                               .key_dim = shape.key_dim,
                               .value_dim = shape.value_dim,
                               .q_factor = 1.0f / std::sqrt(static_cast<float>(shape.key_dim)),
                               .most_rows = has_chunks ? kMostStepRows : std::numeric_limits<int>::max(),
                               .may_choose = !memory.empty()};
  launch_delta_steps(device, params, n_runs);
  if (!has_chunks) return;
  auto* matrices = reinterpret_cast<ChunkMatrices*>(memory.data());
  // A run of n rows has parts of at most n / kStateChunk + 2 chunks.
  const std::int64_t n_rows = args.state.step.header->n_rows;
  const auto n_chunks = static_cast<int>(n_rows / kStateChunk + 2 * std::min(n_runs, n_rows / (kMostStepRows + 1)));
  const int at_once = kChunkMatrices / shape.n_heads;
  for (int first = 0; first < n_chunks; first += at_once) {
    const ChunkRange range{first, std::min(at_once, n_chunks - first)};
    launch_delta_prepare(device, params, range, matrices);
    launch_delta_scan(device, params, range, matrices, n_runs);
  }
}

}  // namespace baton::cuda
