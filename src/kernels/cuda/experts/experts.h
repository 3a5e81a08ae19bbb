/// Routing of rows to experts, their matmuls, and the sum of what they compute, on a CUDA device: see the functions of the
/// same names in kernels/ops.h.
#pragma once

#include <memory>
#include <string_view>

#include "kernels/backend.h"
#include "kernels/cuda/device/device.h"

namespace baton::cuda {

/// Copies the experts, which must be dense, to `buffer`, which has their size, one after the other as row-major [n, k].
Result<std::unique_ptr<PackedExperts>> pack_experts(const Device& device, Buffer buffer, const Shape& shape, DType dtype,
                                                    std::string_view name, const ReadExpert& read);

void route_experts(const Device& device, const RouteExpertsArgs& args);
void grouped_matmul(const Device& device, const GroupedMatmulArgs& args);
void combine_experts(const Device& device, const CombineExpertsArgs& args);

}  // namespace baton::cuda
