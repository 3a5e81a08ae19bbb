/// Merges partial attention states on a CUDA device.
#pragma once

#include "kernels/cuda/attention/params.h"
#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// The parameters that the attention and merge kernels have in common.
AttentionParams merge_params(const AttentionMergeArgs& args);

/// In batch-invariant mode the states are folded from left to right.
void attention_merge(const Device& device, const AttentionMergeArgs& args, bool batch_invariant);

}  // namespace baton::cuda
