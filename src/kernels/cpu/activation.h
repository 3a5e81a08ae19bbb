/// Activations on the CPU.
#pragma once

#include "core/parallel.h"
#include "kernels/ops.h"

namespace baton::cpu {

/// See gelu in kernels/ops.h.
void gelu(const Parallel& parallel, const GeluArgs& args);

/// See gated_activation in kernels/ops.h.
void gated_activation(const Parallel& parallel, const GatedActivationArgs& args);

}  // namespace baton::cpu
