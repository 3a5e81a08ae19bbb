/// The skinny GEMM with AVX-512's bf16 dot products.
#include "kernels/cpu/skinny_gemm_avx512.h"
#include "kernels/cpu/skinny_gemm_kernel.h"

namespace baton::cpu {
namespace {

struct Bf16Dot : Avx512Sums {
  using Words = __m512i;

  static Words load_words(const std::byte* at) { return _mm512_loadu_si512(at); }
  static Words broadcast(const std::byte* at) { return _mm512_set1_epi32(*reinterpret_cast<const std::int32_t*>(at)); }
  static Sum multiply_add(Sum sum, Words x, Words weight) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(weight));
  }
};

}  // namespace

const SkinnyGemmKernel kSkinnyGemmBf16Dot = run_skinny_gemm<Bf16Dot>;

}  // namespace baton::cpu
