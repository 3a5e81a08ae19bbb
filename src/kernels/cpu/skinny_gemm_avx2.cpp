/// The skinny GEMM with AVX2 and FMA.
#include <immintrin.h>

#include "kernels/cpu/skinny_gemm_kernel.h"

namespace baton::cpu {
namespace {

struct F32Avx2 {
  using Words = __m256;
  using Sum = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kSums = 12;
  static constexpr int kMaxRows = 6;

  static Sum zero() { return _mm256_setzero_ps(); }
  static Sum load_sum(const float* at) { return _mm256_loadu_ps(at); }
  static void store_sum(float* to, Sum sum) { _mm256_storeu_ps(to, sum); }
  static Words load_words(const std::byte* at) { return _mm256_loadu_ps(reinterpret_cast<const float*>(at)); }
  static Words broadcast(const std::byte* at) { return _mm256_broadcast_ss(reinterpret_cast<const float*>(at)); }
  static Sum multiply_add(Sum sum, Words x, Words weight) { return _mm256_fmadd_ps(x, weight, sum); }
};

}  // namespace

const SkinnyGemmKernel kSkinnyGemmF32Avx2 = run_skinny_gemm<F32Avx2>;

}  // namespace baton::cpu
