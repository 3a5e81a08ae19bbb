/// Logits between the output layer and the sampler on a CUDA device.
#pragma once

#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// See scale_logits in kernels/ops.h.
void scale_logits(const Device& device, const ScaleLogitsArgs& args);

}  // namespace baton::cuda
