/// The skinny GEMM with AVX-512.
#include "kernels/cpu/gemm/skinny_gemm_kernel.h"
#include "kernels/cpu/gemm/word_vectors.h"

namespace baton::cpu {

const SkinnyGemmKernel kSkinnyGemmF32Avx512 = run_skinny_gemm<F32Avx512>;

}  // namespace baton::cpu
