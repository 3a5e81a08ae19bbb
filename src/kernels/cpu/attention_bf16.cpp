/// The chunk kernel with AVX-512's dot products of bf16 pairs: twice the rate of f32.
#include "kernels/cpu/attention_chunk.h"
#include "kernels/cpu/simd_avx512.h"

namespace baton::cpu {
namespace {

/// A step is vdpbf16ps: two products of bf16 values into an f32 sum, with pairs of a row against pairs of the storage.
struct Bf16DotProducts {
  using Simd = Avx512;
  static constexpr int kPerWord = 2;
  static constexpr int kRowBytes = 4;
  using V = __m512;
  using B = __m512i;
  static B load(const std::byte* at) { return _mm512_load_si512(at); }
  static V step(V sum, const std::byte* row, B b) {
    const __m512i pair = _mm512_set1_epi32(*reinterpret_cast<const std::int32_t*>(row));
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(pair), reinterpret_cast<__m512bh>(b));
  }
  static V store_weights(std::byte* to, V p) {
    const auto halves = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(p));
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), halves);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static constexpr int kWeightBytes = 2;
};

}  // namespace

const ChunkKernel kBf16Dot{QueryFormat::bf16_pairs, run_chunk<Bf16DotProducts>};

}  // namespace baton::cpu
