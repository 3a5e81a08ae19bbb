/// Norms of the residual stream on a CUDA device.
#pragma once

#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// See rms_norm in kernels/ops.h. A row's bits do not depend on the number of rows.
void rms_norm(const Device& device, const RmsNormArgs& args);

/// See layer_norm in kernels/ops.h.
void layer_norm(const Device& device, const LayerNormArgs& args);

}  // namespace baton::cuda
