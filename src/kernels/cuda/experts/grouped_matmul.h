/// Matmuls of several experts on a CUDA device.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/device/device.h"

namespace baton::cuda {

/// Copies the experts to `buffer`, which has their size, one behind the other as row-major [n, k].
Result<std::unique_ptr<PackedExperts>> pack_experts(const Device& device, Buffer buffer, const Shape& shape, DType dtype,
                                                    const ReadExpert& read);

/// See grouped_matmul in kernels/ops.h.
void grouped_matmul(const Device& device, const GroupedMatmulArgs& args);

}  // namespace baton::cuda
