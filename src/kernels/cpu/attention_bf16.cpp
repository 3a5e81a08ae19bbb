/// The chunk kernel with AVX-512's dot products of bf16 pairs: twice the rate of f32.
#include "kernels/cpu/attention_bf16_dot.h"
#include "kernels/cpu/attention_chunk.h"

namespace baton::cpu {

const ChunkKernel kBf16Dot{QueryFormat::bf16_pairs, run_chunk<Bf16DotProducts>};

}  // namespace baton::cpu
