/// Routing of rows to experts, and the sum of what the experts compute, on a CUDA device.
#pragma once

#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// See route_experts and combine_experts in kernels/ops.h.
void route_experts(const Device& device, const RouteExpertsArgs& args);
void combine_experts(const Device& device, const CombineExpertsArgs& args);

}  // namespace baton::cuda
