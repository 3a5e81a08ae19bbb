/// The skinny GEMM with AVX-512.
#include "kernels/cpu/skinny_gemm_avx512.h"
#include "kernels/cpu/skinny_gemm_kernel.h"

namespace baton::cpu {
namespace {

struct F32Avx512 : Avx512Sums {
  using Words = __m512;

  static Words load_words(const std::byte* at) { return _mm512_loadu_ps(at); }
  static Words broadcast(const std::byte* at) { return _mm512_set1_ps(*reinterpret_cast<const float*>(at)); }
  static Sum multiply_add(Sum sum, Words x, Words weight) { return _mm512_fmadd_ps(x, weight, sum); }
};

}  // namespace

const SkinnyGemmKernel kSkinnyGemmF32Avx512 = run_skinny_gemm<F32Avx512>;

}  // namespace baton::cpu
