/// The attention kernel of one instruction set: it computes one chunk of keys for a tile of query rows and folds the
/// result into the rows' states.
///
/// Included by attention.cpp and by files compiled for one instruction set. Those must not instantiate inline
/// functions that the rest of the program may link to, so this header includes none of ours.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::cpu {

/// Tokens of a chunk (kAttentionChunk); tokens of a storage tile; tiles of a chunk.
inline constexpr int kChunkTokens = 256;
inline constexpr int kTilesOfChunk = kChunkTokens / 16;
/// Most query rows (token row, head) of one ChunkTask: their scores take 32 KB and stay in the cache.
inline constexpr int kMaxTileRows = 32;
/// The largest head_dim (kMaxLatentHeadDim): the distance between rows of states and of queries.
inline constexpr int kStateRow = 576;

/// One chunk: keys of tiles [first_tile, end_tile), for rows that see tokens [lo, hi), counted from the chunk's first
/// token. A token of these tiles that no row sees may have any bits in K, but must have finite values in V.
struct ChunkTask {
  const std::byte* const* k_tiles;  ///< K part of each tile, at [first_tile, end_tile)
  const std::byte* const* v_tiles;
  const std::byte* const* k_ahead;  ///< tiles to prefetch, read after this chunk; any addresses
  int first_tile;
  int end_tile;
  int n_rows;
  const std::int16_t* lo;  ///< [n_rows]; an empty row has lo = hi
  const std::int16_t* hi;
  int head_dim;        ///< elements of a key
  int value_dim;       ///< elements of a value
  int v_dim;           ///< value_dim in storage, with padding
  float scale;         ///< of q times k: log2(e) included, or divided by the soft-cap if there is one
  float cap;           ///< soft-cap times log2(e); 0: none
  const std::byte* q;  ///< [n_rows][kQueryRowBytes], packed by QueryFormat
  float* scores;       ///< scratch [n_rows][kChunkTokens]
  std::byte* weights;  ///< scratch [n_rows][kChunkTokens * 4 bytes]
  float* chunk_o;      ///< scratch [n_rows][v_dim]
  float* chunk_m;      ///< scratch [n_rows]
  float* chunk_l;      ///< scratch [n_rows]
  float* o;            ///< [n_rows][kStateRow]: the rows' states, to which the chunk's are added
  float* m;            ///< [n_rows]
  float* l;            ///< [n_rows]
};

/// How a row of q is packed: f32, bf16 values as f32, or pairs of bf16.
enum class QueryFormat { f32, bf16_as_f32, bf16_pairs };
inline constexpr std::size_t kQueryRowBytes = kStateRow * 4;

/// The kernel of an instruction set for a storage dtype.
struct ChunkKernel {
  QueryFormat format;
  void (*run)(const ChunkTask& task);
};

// The rows of a task are independent: each row's sums run over dimensions, then over tokens in ascending order,
// whatever the number of other rows. l sums the weights as they are multiplied (rounded to bf16 over a bf16 cache), so
// the normalised weights always sum to one.
extern const ChunkKernel kF32Baseline, kF32Avx2, kF32Avx512;
extern const ChunkKernel kBf16Baseline, kBf16Avx2, kBf16Avx512, kBf16Dot, kBf16Tiles;

}  // namespace baton::cpu
