/// The launches of the attention kernel: one instantiation a file (attention_TYPE_DIM.cu), so that they compile side by side.
#pragma once

#include "kernels/cuda/attention_params.h"
#include "kernels/cuda/device.h"

namespace baton::cuda {

/// T is the type of queries and products (__half, __nv_bfloat16), kDim the padded head size, kFp8 whether the storage is e4m3.
template <class T, int kDim, bool kFp8>
void launch_attention(const AttentionParams& params, const Device& device, int n_blocks);

}  // namespace baton::cuda
