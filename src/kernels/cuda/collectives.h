/// Collectives of the CUDA backend, which has one rank.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// See the functions of the same names in kernels/ops.h.
void all_reduce(const Device& device, TensorView x);
void all_gather(const Device& device, TensorView out, ConstTensorView part);

}  // namespace baton::cuda
