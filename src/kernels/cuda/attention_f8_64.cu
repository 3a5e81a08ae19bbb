/// Attention over e4m3 keys and values, with queries in bf16 and matmuls in f16, heads of up to 64.
#include "kernels/cuda/attention_kernel.cuh"

namespace baton::cuda {
template void launch_attention<__nv_bfloat16, 64, true>(const AttentionParams&, const Device&, int n_blocks);
template int attention_stages<__nv_bfloat16, 64, true>(const Device&);
}  // namespace baton::cuda
