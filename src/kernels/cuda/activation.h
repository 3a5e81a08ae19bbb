/// Activations on a CUDA device.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// See silu_mul in kernels/ops.h.
void silu_mul(const Device& device, const SiluMulArgs& args);

/// See gelu in kernels/ops.h.
void gelu(const Device& device, const GeluArgs& args);

}  // namespace baton::cuda
