/// The chunk kernel with AVX-512's bf16 dot products, which have twice the rate of f32.
#include "kernels/cpu/attention/attention_bf16_dot.h"
#include "kernels/cpu/attention/attention_chunk.h"

namespace baton::cpu {

const ChunkKernel kBf16Dot{QueryFormat::bf16_pairs, run_chunk<Bf16DotProducts>};

}  // namespace baton::cpu
