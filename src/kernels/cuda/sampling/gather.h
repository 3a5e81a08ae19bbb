/// First half of sampling on a CUDA device: reads all rows once.
#pragma once

#include "kernels/cuda/device/device.h"

namespace baton::cuda {

struct SampleParams;

/// Fills in the records and near lists of all parts of `n_samples` rows from params.first_sample on.
void gather_parts(const Device& device, const SampleParams& params, unsigned n_samples);

}  // namespace baton::cuda
