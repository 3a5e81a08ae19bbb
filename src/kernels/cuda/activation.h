/// Gated activations on a CUDA device.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// See silu_mul in kernels/ops.h.
void silu_mul(const Device& device, const SiluMulArgs& args);

}  // namespace baton::cuda
