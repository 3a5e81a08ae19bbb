/// Activations on a CUDA device.
#pragma once

#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// See gelu in kernels/ops.h.
void gelu(const Device& device, const GeluArgs& args);

/// See gated_activation in kernels/ops.h.
void gated_activation(const Device& device, const GatedActivationArgs& args);

}  // namespace baton::cuda
