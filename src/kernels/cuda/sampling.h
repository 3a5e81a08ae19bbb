/// Sampling on a CUDA device.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// See sample in kernels/ops.h. Takes vocabularies of up to 4,194,304 tokens.
void sample(const Device& device, const SampleArgs& args);

}  // namespace baton::cuda
