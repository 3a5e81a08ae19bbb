/// The skinny GEMM with SSE2, which every x86-64 processor has.
#include <emmintrin.h>

#include "kernels/cpu/skinny_gemm_kernel.h"

namespace baton::cpu {
namespace {

struct F32Sse2 {
  using Words = __m128;
  using Sum = __m128;
  static constexpr int kLanes = 4;
  static constexpr int kSums = 12;
  static constexpr int kMaxRows = 6;

  static Sum zero() { return _mm_setzero_ps(); }
  static Sum load_sum(const float* at) { return _mm_loadu_ps(at); }
  static void store_sum(float* to, Sum sum) { _mm_storeu_ps(to, sum); }
  static Words load_words(const std::byte* at) { return _mm_loadu_ps(reinterpret_cast<const float*>(at)); }
  static Words broadcast(const std::byte* at) { return _mm_set1_ps(*reinterpret_cast<const float*>(at)); }
  static Sum multiply_add(Sum sum, Words x, Words weight) { return _mm_add_ps(sum, _mm_mul_ps(x, weight)); }
};

}  // namespace

const SkinnyGemmKernel kSkinnyGemmF32Baseline = run_skinny_gemm<F32Sse2>;

}  // namespace baton::cpu
