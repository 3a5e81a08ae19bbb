/// Merges partial attention states on a CUDA device.
#pragma once

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/device.h"
#include "kernels/ops.h"

namespace baton::cuda {

/// The parameters that the attention and merge kernels have in common.
AttentionParams merge_params(const AttentionMergeArgs& args);

void attention_merge(const Device& device, const AttentionMergeArgs& args);

}  // namespace baton::cuda
