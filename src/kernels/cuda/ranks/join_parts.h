/// The last step of all_gather: from parts behind each other to columns beside each other.
#pragma once

#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// out[row][rank * n + i] = parts[rank][row][i], for the columns that out has. At most 65,535 rows.
void join_parts(const Device& device, const AllGatherArgs& args);

}  // namespace baton::cuda
