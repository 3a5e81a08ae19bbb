/// Wide attention over e4m3 keys and values, with queries in bf16 and matmuls in f16, heads of 128.
#include "kernels/cuda/attention_wide_kernel.cuh"

namespace baton::cuda {
template void launch_wide_attention<__nv_bfloat16, 128, true>(const AttentionParams&, const Device&, int n_blocks);
}  // namespace baton::cuda
