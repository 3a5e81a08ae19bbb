/// Attention on the CPU, for a step's work list.
#pragma once

#include "core/parallel.h"
#include "kernels/cpu/isa.h"
#include "kernels/ops.h"

namespace baton::cpu {

/// ops.h: attention, over a CpuKvStorage. Results depend on `isa`, but not on the number of threads or on the other
/// rows of an item. They do not depend on where an item is cut either, if cuts are multiples of kAttentionChunk and
/// the states are folded in the same order. A row's window [kv_lo, kv_hi) is applied whatever the item's flags say.
void attention(const Parallel& parallel, CpuIsa isa, const AttentionArgs& args);

}  // namespace baton::cpu
