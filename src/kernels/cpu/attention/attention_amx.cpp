/// The chunk kernel with AMX: matmuls by tiles, softmax with AVX-512.
#include "kernels/cpu/attention/attention_bf16_dot.h"
#include "kernels/cpu/attention/attention_chunk.h"
#include "kernels/cpu/attention/attention_tiles.h"

namespace baton::cpu {
namespace {

void run_chunk_by_tiles(const ChunkTask& task) {
  if (task.head_dim % 32 != 0) return run_chunk<Bf16DotProducts>(task);
  score_by_tiles<AmxTiles>(task);
  const Avx512::V scale = Avx512::set(task.scale);
  for (int row = 0; row < task.n_rows; ++row) {
    float* scores = task.scores + static_cast<std::ptrdiff_t>(row) * kChunkTokens;
    for (int token = task.first_tile * 16; token < task.end_tile * 16; token += Avx512::kLanes)
      Avx512::store(scores + token, Avx512::mul(Avx512::load(scores + token), scale));
  }
  softmax_rows<Bf16DotProducts>(task);
  value_by_tiles<AmxTiles>(task);
  AmxTiles::release();
  fold_rows(task);
}

}  // namespace

const ChunkKernel kBf16Tiles{QueryFormat::bf16_pairs, run_chunk_by_tiles};

}  // namespace baton::cpu
