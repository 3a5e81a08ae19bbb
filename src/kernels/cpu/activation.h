/// Activations on the CPU.
#pragma once

#include "core/parallel.h"
#include "kernels/ops.h"

namespace baton::cpu {

/// See silu_mul in kernels/ops.h.
void silu_mul(const Parallel& parallel, const SiluMulArgs& args);

/// See gelu in kernels/ops.h.
void gelu(const Parallel& parallel, const GeluArgs& args);

}  // namespace baton::cpu
