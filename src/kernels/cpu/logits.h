/// Logits between the output layer and the sampler on the CPU.
#pragma once

#include "core/parallel.h"
#include "kernels/ops.h"

namespace baton::cpu {

/// See scale_logits in kernels/ops.h.
void scale_logits(const Parallel& parallel, const ScaleLogitsArgs& args);

}  // namespace baton::cpu
