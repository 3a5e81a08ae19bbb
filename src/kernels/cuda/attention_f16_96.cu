/// Attention over f16 keys and values, heads of up to 96.
#include "kernels/cuda/attention_kernel.cuh"

namespace baton::cuda {
template void launch_attention<__half, 96, false>(const AttentionParams&, const Device&, int n_blocks);
template int attention_stages<__half, 96, false>(const Device&);
}  // namespace baton::cuda
