/// Rotates queries and keys and stores keys and values on the CPU.
#pragma once

#include "core/parallel.h"
#include "kernels/ops.h"

namespace baton::cpu {

/// ops.h: rope_append, into a CpuKvStorage. Dimensions from rotary_dim on are copied.
void rope_append(const Parallel& parallel, const RopeAppendArgs& args);

}  // namespace baton::cpu
