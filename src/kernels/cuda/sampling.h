/// Sampling on a CUDA device.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// Device memory that launches use and leave to the next. Made once by the backend, never resized: recorded graphs hold it.
struct SampleWorkspace {
  float* originals = nullptr;  ///< room for the logit of each bias and count of a step
  std::int32_t n_originals = 0;
  std::uint64_t* places = nullptr;  ///< of the most likely tokens of parts of rows, for as many as there may be blocks at once
  std::int32_t n_places = 0;
};

/// See sample in kernels/ops.h. Takes vocabularies of up to 4,194,304 tokens. An order, list, slot or token outside of its
/// table stops the device.
void sample(const Device& device, const SampleWorkspace& workspace, const SampleArgs& args);

}  // namespace baton::cuda
