/// Scaling of logits and sampling on a CUDA device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// Device memory that successive launches share. The backend allocates it once and never resizes it, because captured
/// graphs contain its address.
struct SampleWorkspace {
  float* originals = nullptr;  ///< room for the logit of each bias and count of a step
  std::int32_t n_originals = 0;
  std::byte* parts = nullptr;  ///< records and near lists of kSampleParts parts of rows, kPartBytes each
};

/// See scale_logits in kernels/ops.h.
void scale_logits(const Device& device, const ScaleLogitsArgs& args);

/// See sample in kernels/ops.h. Takes vocabularies of up to 4,194,304 tokens. A sample, list, slot or token outside
/// its table stops the device.
void sample(const Device& device, const SampleWorkspace& workspace, const SampleArgs& args);

}  // namespace baton::cuda
