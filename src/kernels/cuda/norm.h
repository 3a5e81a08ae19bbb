/// RMSNorm on a CUDA device.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// See rms_norm in kernels/ops.h. A row's bits do not depend on the number of rows.
void rms_norm(const Device& device, const RmsNormArgs& args);

}  // namespace baton::cuda
