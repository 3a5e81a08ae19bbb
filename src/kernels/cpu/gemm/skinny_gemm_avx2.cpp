/// The skinny GEMM with AVX2 and FMA.
#include "kernels/cpu/gemm/skinny_gemm_kernel.h"
#include "kernels/cpu/gemm/word_vectors.h"

namespace baton::cpu {

const SkinnyGemmKernel kSkinnyGemmF32Avx2 = run_skinny_gemm<F32Avx2>;

}  // namespace baton::cpu
