/// Attention by a step's work list on the CPU.
#pragma once

#include "core/parallel.h"
#include "kernels/cpu/isa.h"
#include "kernels/ops.h"

namespace baton::cpu {

/// ops.h: attention, over a CpuKvStorage. Bits depend on `isa`; neither on the number of threads, nor on the other
/// rows of an item, nor on where it is cut as long as cuts are multiples of kAttentionChunk and the states fold in the
/// same order. A row's window [kv_lo, kv_hi) is applied whatever the item's flags say.
void attention(const Parallel& parallel, CpuIsa isa, const AttentionArgs& args);

}  // namespace baton::cpu
