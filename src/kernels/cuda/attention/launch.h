/// The launches of the attention kernel. Each instantiation has its own file (attention_TYPE_DIM.cu), so that they
/// compile in parallel.
#pragma once

#include <cstddef>

#include "kernels/cuda/attention/params.h"
#include "kernels/cuda/device/device.h"

namespace baton::cuda {

/// Query rows (token row x query head of the KV head) that one read of keys and values serves.
constexpr int kAttentionTileRows = 64;

/// Blocks of the attention kernel on a multiprocessor. With two, the loads and the first and last steps of one overlap
/// the matmuls of the other. Other devices than those of 9.0 have room for one: of shared memory, or of registers, which only
/// sm_90a gives to the warps that need them.
inline int attention_blocks_a_multiprocessor(const Device& device) { return device.compute_capability == 90 ? 2 : 1; }

/// How a block of the attention kernel divides its memory, by what the device has.
struct MemoryPlan {
  int n_stages = 0;  ///< of keys and values, in shared memory; the kernel needs two
  /// The scratch memory lies where the queries do, which are in registers when it is written. The queries of the next tile are
  /// copied when this tile is written.
  bool scratch_over_queries = false;
  std::size_t device_bytes = 0;  ///< of AttentionParams::chunk_states, for all blocks; 0: states are in shared memory
};

template <class T, int kDim, bool kFp8>
MemoryPlan plan_attention_memory(const Device& device);

/// T is the type of queries and, unless kFp8, of matmul operands (__half, __nv_bfloat16), kDim the padded head size,
/// kFp8 whether the storage is e4m3.
template <class T, int kDim, bool kFp8>
void launch_attention(const AttentionParams& params, const Device& device, int n_blocks);

}  // namespace baton::cuda
