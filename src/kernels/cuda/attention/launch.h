/// The launches of the attention kernel. Each instantiation has its own file (attention_TYPE_DIM.cu), so that they
/// compile in parallel.
#pragma once

#include "kernels/cuda/attention/params.h"
#include "kernels/cuda/device/device.h"

namespace baton::cuda {

/// Query rows (token row x query head of the KV head) that one read of keys and values serves.
constexpr int kAttentionTileRows = 64;

/// Blocks of the attention kernel on a multiprocessor. With two, the loads and the first and last steps of one overlap
/// the matmuls of the other. Before sm_90 shared memory has room for one.
inline int attention_blocks_a_multiprocessor(const Device& device) { return device.compute_capability >= 90 ? 2 : 1; }

/// Stages of keys and values that fit into the shared memory of a block; the kernel needs two.
template <class T, int kDim, bool kFp8>
int attention_stages(const Device& device);

/// T is the type of queries and, unless kFp8, of matmul operands (__half, __nv_bfloat16), kDim the padded head size,
/// kFp8 whether the storage is e4m3.
template <class T, int kDim, bool kFp8>
void launch_attention(const AttentionParams& params, const Device& device, int n_blocks);

}  // namespace baton::cuda
