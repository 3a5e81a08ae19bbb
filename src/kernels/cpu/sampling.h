/// Sampling on the CPU.
#pragma once

#include "core/parallel.h"
#include "kernels/ops.h"

namespace baton::cpu {

/// See sample in kernels/ops.h.
void sample(const Parallel& parallel, const SampleArgs& args);

}  // namespace baton::cpu
