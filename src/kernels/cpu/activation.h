/// Gated activations on the CPU.
#pragma once

#include "core/parallel.h"
#include "kernels/ops.h"

namespace baton::cpu {

/// See silu_mul in kernels/ops.h.
void silu_mul(const Parallel& parallel, const SiluMulArgs& args);

}  // namespace baton::cpu
