/// Attention in batch-invariant mode: a row's bits depend on nothing but the row, its keys and its values.
#pragma once

#include "kernels/cuda/attention/launch.h"
#include "kernels/cuda/attention/params.h"
#include "kernels/cuda/device/device.h"

namespace baton::cuda {

template <class T, int kDim, bool kFp8>
MemoryPlan plan_invariant_attention_memory(const Device& device);

/// T is the type of queries, and of keys and values unless kFp8 (e4m3); kDim the padded head size. `n_blocks`: the grid of the
/// other kernel.
template <class T, int kDim, bool kFp8>
void launch_invariant_attention(const AttentionParams& params, const Device& device, int n_blocks);

/// Merges partial states in the order of merge_inputs, one by one.
void fold_attention(const AttentionParams& params, const Device& device, bool is_f16);

}  // namespace baton::cuda
