/// The weights of all experts on a CUDA device.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/schemes/scheme_layout.h"

namespace baton::cuda {

/// In one piece of device memory. Dense experts are row-major [n_experts, n, k]. Others are tiles in the order of lanes:
/// those of expert e begin with tile e * view.n_tiles.
class CudaExperts final : public PackedExperts {
 public:
  Buffer buffer;
  SchemeView view;                             ///< of the first expert
  const std::int32_t* permutations = nullptr;  ///< [n_experts, k], or null
};

}  // namespace baton::cuda
