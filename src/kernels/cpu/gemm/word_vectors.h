/// The vectors of each instruction set, and how words of x and of a weight are multiplied. Included only by files
/// compiled for one instruction set.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace baton::cpu {
namespace {

/// f32 with SSE2, which every x86-64 processor has.
struct F32Sse2 {
  using Words = __m128;
  using Sum = __m128;
  static constexpr int kLanes = 4;
  static constexpr int kSums = 12;  // of 16 registers
  static constexpr int kMaxRows = 6;

  static Sum zero() { return _mm_setzero_ps(); }
  static Sum load_sum(const float* at) { return _mm_loadu_ps(at); }
  static void store_sum(float* to, Sum sum) { _mm_storeu_ps(to, sum); }
  static Sum all(float number) { return _mm_set1_ps(number); }
  static Sum fold(Sum sum, Sum a, Sum b) { return _mm_add_ps(sum, _mm_mul_ps(a, b)); }
  static Words load_words(const std::byte* at) { return _mm_loadu_ps(reinterpret_cast<const float*>(at)); }
  static void store_words(std::byte* to, Words words) { _mm_storeu_ps(reinterpret_cast<float*>(to), words); }
  static Words broadcast(const std::byte* at) { return _mm_set1_ps(*reinterpret_cast<const float*>(at)); }
  static Sum multiply_add(Sum sum, Words x, Words weight) { return _mm_add_ps(sum, _mm_mul_ps(x, weight)); }
};

#if defined(__AVX2__) && defined(__FMA__)
struct F32Avx2 {
  using Words = __m256;
  using Sum = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kSums = 12;
  static constexpr int kMaxRows = 6;

  static Sum zero() { return _mm256_setzero_ps(); }
  static Sum load_sum(const float* at) { return _mm256_loadu_ps(at); }
  static void store_sum(float* to, Sum sum) { _mm256_storeu_ps(to, sum); }
  static Sum all(float number) { return _mm256_set1_ps(number); }
  static Sum fold(Sum sum, Sum a, Sum b) { return _mm256_fmadd_ps(a, b, sum); }
  static Words load_words(const std::byte* at) { return _mm256_loadu_ps(reinterpret_cast<const float*>(at)); }
  static void store_words(std::byte* to, Words words) { _mm256_storeu_ps(reinterpret_cast<float*>(to), words); }
  static Words broadcast(const std::byte* at) { return _mm256_broadcast_ss(reinterpret_cast<const float*>(at)); }
  static Sum multiply_add(Sum sum, Words x, Words weight) { return _mm256_fmadd_ps(x, weight, sum); }
};
#endif

#ifdef __AVX512F__
/// Sums in vectors of 16 f32.
struct Avx512Sums {
  using Sum = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kSums = 28;  // of 32 registers
  static constexpr int kMaxRows = 7;

  static Sum zero() { return _mm512_setzero_ps(); }
  static Sum load_sum(const float* at) { return _mm512_loadu_ps(at); }
  static void store_sum(float* to, Sum sum) { _mm512_storeu_ps(to, sum); }
  static Sum all(float number) { return _mm512_set1_ps(number); }
  static Sum fold(Sum sum, Sum a, Sum b) { return _mm512_fmadd_ps(a, b, sum); }
};

struct F32Avx512 : Avx512Sums {
  using Words = __m512;

  static Words load_words(const std::byte* at) { return _mm512_loadu_ps(at); }
  static void store_words(std::byte* to, Words words) { _mm512_storeu_ps(to, words); }
  static Words broadcast(const std::byte* at) { return _mm512_set1_ps(*reinterpret_cast<const float*>(at)); }
  static Sum multiply_add(Sum sum, Words x, Words weight) { return _mm512_fmadd_ps(x, weight, sum); }
};
#endif

#ifdef __AVX512BF16__
/// Words of two bf16, by AVX-512's dot products.
struct Bf16Dot : Avx512Sums {
  using Words = __m512i;

  static Words load_words(const std::byte* at) { return _mm512_loadu_si512(at); }
  static void store_words(std::byte* to, Words words) { _mm512_storeu_si512(to, words); }
  static Words broadcast(const std::byte* at) { return _mm512_set1_epi32(*reinterpret_cast<const std::int32_t*>(at)); }
  static Sum multiply_add(Sum sum, Words x, Words weight) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(weight));
  }
};
#endif

}  // namespace
}  // namespace baton::cpu
