/// Products of few rows with AVX-512.
#include <immintrin.h>

#include "kernels/cpu/few_rows_kernel.h"

namespace baton::cpu {
namespace {

struct F32Avx512 {
  using Words = __m512;
  using Sum = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kSums = 28;  // of 32 registers
  static constexpr int kMaxRows = 7;

  static Sum zero() { return _mm512_setzero_ps(); }
  static Sum load_sum(const float* at) { return _mm512_loadu_ps(at); }
  static void store_sum(float* to, Sum sum) { _mm512_storeu_ps(to, sum); }
  static Words load_words(const std::byte* at) { return _mm512_loadu_ps(at); }
  static Words broadcast(const std::byte* at) { return _mm512_set1_ps(*reinterpret_cast<const float*>(at)); }
  static Sum multiply_add(Sum sum, Words x, Words weight) { return _mm512_fmadd_ps(x, weight, sum); }
};

}  // namespace

const FewRowsKernel kFewRowsF32Avx512 = run_few_rows<F32Avx512>;

}  // namespace baton::cpu
