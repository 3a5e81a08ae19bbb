/// The chunk kernel with AVX-512, for processors without bf16 dot products and for f32 caches.
#include "kernels/cpu/attention/attention_chunk.h"
#include "kernels/cpu/simd_avx512.h"

namespace baton::cpu {

const ChunkKernel kF32Avx512{QueryFormat::f32, run_chunk<F32Products<Avx512>>};
const ChunkKernel kBf16Avx512{QueryFormat::bf16_as_f32, run_chunk<Bf16Products<Avx512>>};

}  // namespace baton::cpu
