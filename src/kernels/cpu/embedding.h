/// The edges of the decoder on the CPU: rows resolved against the slot table, tokens to vectors, rows chosen for
/// logits.
#pragma once

#include "core/parallel.h"
#include "kernels/ops.h"

namespace baton::cpu {

/// See the functions of the same names in kernels/ops.h.
void resolve_rows(const ResolveRowsArgs& args);
void embedding(const Parallel& parallel, const EmbeddingArgs& args);
void gather_rows(const GatherRowsArgs& args);

}  // namespace baton::cpu
