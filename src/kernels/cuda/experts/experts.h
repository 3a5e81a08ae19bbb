/// Routing of rows to experts, their matmuls, and the sum of what they compute, on a CUDA device: see the functions of the
/// same names in kernels/ops.h.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "kernels/backend.h"
#include "kernels/cuda/device/device.h"

namespace baton::cuda {

/// Packs the experts, which must be stored alike, in memory of their own. Those in 8 and 4 bits pass through `room`, device
/// memory of 16 MiB or more that other matmuls may use between calls.
Result<std::unique_ptr<PackedExperts>> pack_experts(const Device& device, std::span<std::byte> room, const Shape& shape,
                                                    DType dtype, std::string_view name, const ReadExpert& read);

void route_experts(const Device& device, const RouteExpertsArgs& args);
/// With `batch_invariant` one kernel, which the weight chooses, for every number of places.
void grouped_matmul(const Device& device, const GroupedMatmulArgs& args, bool batch_invariant);
void combine_experts(const Device& device, const CombineExpertsArgs& args);

}  // namespace baton::cuda
