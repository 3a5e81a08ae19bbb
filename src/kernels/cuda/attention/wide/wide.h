/// Attention with tiles of 128 query rows, for steps whose sequences have many rows: prefill and extends. Only sm_90a
/// has it, for heads of 64 or 128. To the planner these are tiles of kind 1 (kernels/attention_costs.h).
#pragma once

#include <algorithm>

#include "kernels/cuda/attention/params.h"
#include "kernels/cuda/device/device.h"

namespace baton::cuda {

/// Query rows of a tile of the wide kernel.
constexpr int kWideTileRows = 128;

/// Blocks of the wide kernel, one a multiprocessor, where the other kernel runs `n_blocks`.
inline int wide_attention_blocks(int n_blocks) { return std::max(1, n_blocks / 2); }

/// Whether the wide kernel runs on the device: code for sm_90a is in this build, and the device takes it.
bool has_wide_attention(const Device& device);

/// Whether the device runs the kernel's code for sm_90a, and not what its driver makes of code for older devices.
template <class T, int kDim, bool kFp8 = false>
bool runs_wide_attention();

/// T is the type of queries, and of keys and values unless kFp8 (e4m3); kDim the head size. One block a multiprocessor.
template <class T, int kDim, bool kFp8 = false>
void launch_wide_attention(const AttentionParams& params, const Device& device, int n_blocks);
/// The same in batch-invariant mode. A row has the bits of launch_invariant_attention.
template <class T, int kDim, bool kFp8 = false>
void launch_wide_invariant_attention(const AttentionParams& params, const Device& device, int n_blocks);

}  // namespace baton::cuda
