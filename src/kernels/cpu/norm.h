/// Norms of the residual stream on the CPU.
#pragma once

#include "core/parallel.h"
#include "kernels/ops.h"

namespace baton::cpu {

/// See rms_norm in kernels/ops.h.
void rms_norm(const Parallel& parallel, const RmsNormArgs& args);

/// See layer_norm in kernels/ops.h.
void layer_norm(const Parallel& parallel, const LayerNormArgs& args);

}  // namespace baton::cpu
