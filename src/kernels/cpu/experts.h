/// Routing of rows to experts, and the sum of what the experts compute, on the CPU.
#pragma once

#include "core/parallel.h"
#include "kernels/ops.h"

namespace baton::cpu {

/// See route_experts and combine_experts in kernels/ops.h.
void route_experts(const Parallel& parallel, const RouteExpertsArgs& args);
void combine_experts(const Parallel& parallel, const CombineExpertsArgs& args);

}  // namespace baton::cpu
