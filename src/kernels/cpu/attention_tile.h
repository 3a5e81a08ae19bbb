/// What one instruction set does for attention: one chunk of keys for a tile of query rows, folded into the rows'
/// states.
///
/// Seen by attention.cpp and by the files that are compiled with their own instruction sets; those must not
/// instantiate inline functions that the rest of the program may link to, so this header includes nothing of ours.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::cpu {

/// Tokens of a chunk (kAttentionChunk), of a tile of the storage, and the tiles of a chunk.
inline constexpr int kChunkTokens = 256;
inline constexpr int kTilesOfChunk = kChunkTokens / 16;
/// Query rows (token row, head) of one ChunkTask: their scores, 32 KB, stay close.
inline constexpr int kMaxTileRows = 32;
/// The largest head_dim: what rows of states and queries are apart.
inline constexpr int kStateRow = 256;

/// Keys of tiles [first_tile, end_tile) of a chunk, for rows whose visible tokens are [lo, hi), counted from the
/// chunk's first token. Tokens of the tiles that no row sees may hold anything in K and must hold finite values in V.
struct ChunkTask {
  const std::byte* const* k_tiles;  ///< K part of each tile, at [first_tile, end_tile)
  const std::byte* const* v_tiles;
  const std::byte* const* k_ahead;  ///< what is read after this chunk, fetched by the way; any addresses
  int first_tile;
  int end_tile;
  int n_rows;
  const std::int16_t* lo;  ///< [n_rows]; an empty row has lo = hi
  const std::int16_t* hi;
  int head_dim;
  int v_dim;
  float scale;         ///< of the products: times log2(e), or divided by the bound if there is one
  float cap;           ///< bound of the scores times log2(e), 0: none
  const std::byte* q;  ///< [n_rows][kQueryRowBytes], packed by QueryFormat
  float* scores;       ///< scratch [n_rows][kChunkTokens]
  std::byte* weights;  ///< scratch [n_rows][kChunkTokens * 4 bytes]
  float* chunk_o;      ///< scratch [n_rows][v_dim]
  float* chunk_m;      ///< scratch [n_rows]
  float* chunk_l;      ///< scratch [n_rows]
  float* o;            ///< [n_rows][kStateRow]: the rows' states, into which the chunk's are folded
  float* m;            ///< [n_rows]
  float* l;            ///< [n_rows]
};

/// How a row of q is packed: f32, bf16 values as f32, or pairs of bf16.
enum class QueryFormat { f32, bf16_as_f32, bf16_pairs };
inline constexpr std::size_t kQueryRowBytes = kStateRow * 4;

/// What an instruction set offers for a storage dtype.
struct ChunkKernel {
  QueryFormat format;
  void (*run)(const ChunkTask& task);
};

// Rows of one task never mix: each row's sums run over dimensions, then over tokens in ascending order, whatever the
// number of rows beside it. l sums the weights as they are multiplied, that is rounded to bf16 over a bf16 cache, so
// that they always sum to one.
extern const ChunkKernel kF32Baseline, kF32Avx2, kF32Avx512;
extern const ChunkKernel kBf16Baseline, kBf16Avx2, kBf16Avx512, kBf16Dot, kBf16Tiles;

}  // namespace baton::cpu
