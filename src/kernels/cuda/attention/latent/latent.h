/// Attention over latent vectors (KvShape::latent_dim): one key for all query heads, whose beginning is its value. sm_90a only.
#pragma once

#include "kernels/cuda/attention/params.h"
#include "kernels/cuda/device/device.h"

namespace baton::cuda {

/// Query rows of a tile of the latent kernel: (token row, head) pairs, those of a token row one after the other.
constexpr int kLatentTileRows = 64;

/// Elements of a key that follow its latent vector: they are rotated.
constexpr int kLatentRotaryDim = 64;

/// Whether the device runs the kernel's code for sm_90a.
template <class T, int kLatent>
bool runs_latent_attention();

/// T is the type of queries and keys, kLatent the elements of a value. One block a multiprocessor.
template <class T, int kLatent>
void launch_latent_attention(const AttentionParams& params, const Device& device, int n_blocks);

}  // namespace baton::cuda
