/// Wide attention over bf16 keys and values, heads of 64.
#include "kernels/cuda/attention_wide_kernel.cuh"

namespace baton::cuda {
template bool runs_wide_attention<__nv_bfloat16, 64>();
template void launch_wide_attention<__nv_bfloat16, 64>(const AttentionParams&, const Device&, int n_blocks);
}  // namespace baton::cuda
