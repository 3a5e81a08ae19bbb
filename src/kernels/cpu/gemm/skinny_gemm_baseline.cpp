/// The skinny GEMM with SSE2, which every x86-64 processor has.
#include "kernels/cpu/gemm/skinny_gemm_kernel.h"
#include "kernels/cpu/gemm/word_vectors.h"

namespace baton::cpu {

const SkinnyGemmKernel kSkinnyGemmF32Baseline = run_skinny_gemm<F32Sse2>;

}  // namespace baton::cpu
