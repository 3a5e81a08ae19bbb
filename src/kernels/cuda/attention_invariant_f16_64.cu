/// Batch-invariant attention over f16 keys and values, heads of up to 64.
#include "kernels/cuda/attention_invariant_kernel.cuh"

namespace baton::cuda {
template void launch_invariant_attention<__half, 64>(const AttentionParams&, const Device&, int n_blocks);
template int invariant_attention_stages<__half, 64>(const Device&);
}  // namespace baton::cuda
