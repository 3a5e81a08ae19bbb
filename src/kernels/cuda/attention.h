/// Attention over the work list on a CUDA device: one persistent launch.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cuda/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// What launches share and leave as they found it. Made once by the backend, never resized: recorded graphs hold the addresses.
struct AttentionWorkspace {
  unsigned* arrivals = nullptr;  ///< the counter of the grid's barrier
  int n_blocks = 0;              ///< of the persistent grid, all resident at once
  bool merges_inside = false;    ///< else a launch of its own merges
};

/// Says in a sentence why attention cannot work with this storage on this device, or nothing: asked before anything is built.
/// q must have the storage's dtype (bf16 for f8_e4m3); out that dtype or f32.
std::string attention_obstacle(const Device& device, const KvShape& kv);

void attention(const Device& device, const AttentionWorkspace& workspace, const AttentionArgs& args);

}  // namespace baton::cuda
