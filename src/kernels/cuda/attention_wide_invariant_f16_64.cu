/// Wide attention of batch-invariant mode over f16 keys and values, heads of 64.
#include "kernels/cuda/attention_wide_invariant_kernel.cuh"

namespace baton::cuda {
template void launch_wide_invariant_attention<__half, 64>(const AttentionParams&, const Device&, int n_blocks);
}  // namespace baton::cuda
