/// Reads the headers and sections of an uploaded step on the device. They have the same places in every step of a
/// model.
#pragma once

#include <cstddef>

#include "kernels/batch.h"

namespace baton::cuda {

__device__ inline const StepHeader& step_header(const std::byte* step) { return *reinterpret_cast<const StepHeader*>(step); }

__device__ inline const LayerGroupHeader& group_header(const std::byte* step, int group) {
  return reinterpret_cast<const LayerGroupHeader*>(step + sizeof(StepHeader))[group];
}

template <class T>
__device__ const T* section(const std::byte* step, const Section& section) {
  return reinterpret_cast<const T*>(step + section.offset);
}

}  // namespace baton::cuda
