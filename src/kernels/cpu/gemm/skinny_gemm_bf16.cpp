/// The skinny GEMM with AVX-512's bf16 dot products.
#include "kernels/cpu/gemm/skinny_gemm_kernel.h"
#include "kernels/cpu/gemm/word_vectors.h"

namespace baton::cpu {

const SkinnyGemmKernel kSkinnyGemmBf16Dot = run_skinny_gemm<Bf16Dot>;

}  // namespace baton::cpu
