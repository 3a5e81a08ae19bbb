/// The weights of all experts on a CUDA device.
#pragma once

#include <cstdint>
#include <optional>

#include <cuda.h>

#include "kernels/backend.h"
#include "kernels/cuda/schemes/scheme_layout.h"
#include "kernels/named_kernels.h"

namespace baton::cuda {

/// In one piece of device memory. Dense experts are row-major [n_experts, n, k]. Others are tiles in the order of lanes:
/// those of expert e begin with tile e * view.n_tiles.
class CudaExperts final : public PackedExperts, public NamedKernels {
 public:
  /// Whether the kernels with matrix units take these weights, which are not dense.
  bool fits_scheme_units() const {
    // A lane has 8 columns of every 32, whose numbers of f4 it scales itself.
    const int least_shift = scheme == WeightScheme::f4 ? 3 : 5;
    return dtype != DType::f32 && k % 8 == 0 && view.group_shift >= least_shift && permutations == nullptr;
  }

  Buffer buffer;
  SchemeView view;                             ///< of the first expert
  const std::int32_t* permutations = nullptr;  ///< [n_experts, k], or null
  std::optional<CUtensorMap> map;  ///< describes dense experts to copies of boxes of 64 rows, where a device has them
};

}  // namespace baton::cuda
