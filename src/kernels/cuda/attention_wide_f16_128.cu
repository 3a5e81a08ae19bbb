/// Wide attention over f16 keys and values, heads of 128.
#include "kernels/cuda/attention_wide_kernel.cuh"

namespace baton::cuda {
template bool runs_wide_attention<__half, 128>();
template void launch_wide_attention<__half, 128>(const AttentionParams&, const Device&, int n_blocks);
}  // namespace baton::cuda
