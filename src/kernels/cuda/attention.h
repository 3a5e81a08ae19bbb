/// Attention over the work list on a CUDA device: one persistent launch.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cuda/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// Says in a sentence why attention cannot work with this storage on this device, or nothing: asked before anything is
/// built. q must have the storage's dtype (bf16 for f8_e4m3); out that dtype or f32.
std::string attention_obstacle(const Device& device, const KvShape& kv);

/// `n_blocks`: the persistent grid's, all resident at once. Rows with partial states are merged by a second launch if
/// args.merge is set and the step has any.
void attention(const Device& device, int n_blocks, const AttentionArgs& args);

}  // namespace baton::cuda
