/// The parts that the AVX-512 files of the skinny GEMM have in common. Included only by those.
#pragma once

#include <immintrin.h>

namespace baton::cpu {
namespace {

/// Sums in vectors of 16 f32.
struct Avx512Sums {
  using Sum = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kSums = 28;  // of 32 registers
  static constexpr int kMaxRows = 7;

  static Sum zero() { return _mm512_setzero_ps(); }
  static Sum load_sum(const float* at) { return _mm512_loadu_ps(at); }
  static void store_sum(float* to, Sum sum) { _mm512_storeu_ps(to, sum); }
};

}  // namespace
}  // namespace baton::cpu
