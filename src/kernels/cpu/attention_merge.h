/// Merging of partial attention states on the CPU.
#pragma once

#include "core/parallel.h"
#include "kernels/ops.h"

namespace baton::cpu {

/// ops.h: attention_merge. The bits are the same for any number of threads and any instruction set.
void attention_merge(const Parallel& parallel, const AttentionMergeArgs& args);

}  // namespace baton::cpu
