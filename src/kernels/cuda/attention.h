/// Attention for a step's work list on a CUDA device, in one persistent launch.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// Returns why attention does not work with this storage on this device, as a sentence, or nothing. Called before
/// anything is allocated. q must have the storage's dtype (bf16 for f8_e4m3), out that dtype or f32.
std::string attention_obstacle(const Device& device, const KvShape& kv, bool batch_invariant);

/// `n_blocks` is the size of the persistent grid; all blocks must be resident at once. If args.merge is set and the
/// step has partial states, a second launch merges them. In batch-invariant mode the plan must be one of that mode.
void attention(const Device& device, int n_blocks, const AttentionArgs& args, bool batch_invariant);

}  // namespace baton::cuda
