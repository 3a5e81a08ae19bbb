/// The operations before and after the layers on the CPU: rows resolved with the slot table, token embedding,
/// selection of rows for logits.
#pragma once

#include "core/parallel.h"
#include "kernels/ops.h"

namespace baton::cpu {

/// See the functions of the same names in kernels/ops.h.
void resolve_rows(const ResolveRowsArgs& args);
void embedding(const Parallel& parallel, const EmbeddingArgs& args);
void gather_rows(const GatherRowsArgs& args);

}  // namespace baton::cpu
