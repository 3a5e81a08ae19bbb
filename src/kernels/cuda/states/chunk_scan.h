/// Recurrent layers in chunks of kStateChunk positions, by multiplying f16 numbers on the matrix units. A first kernel of each rule
/// (delta_prepare.cu, mamba2_prepare.cu) computes for all chunks at once what does not need the state; the kernel here goes through
/// the chunks of a run in turn.
///
/// Operands are f16. A row of keys or queries, which are bf16, is multiplied by a power of two that makes its norm about 1. Every
/// other operand is the sum of two f16 numbers, multiplied by powers of two that bring its largest numbers near the upper end of
/// f16: the sum then has 22 bits, down to 2^-25 of what f16 can hold. Where two such sums are multiplied, the product of the smaller
/// numbers is left out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "kernels/batch.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/states/state_storage.h"
#include "kernels/ops.h"

namespace baton::cuda {

enum class ChunkRule { delta, mamba2 };

inline constexpr int kChunkKeyDim = 128;    ///< the only one in chunks
inline constexpr int kChunkValueStep = 64;  ///< value_dim is a multiple of it
inline constexpr int kOperandParts = 2;
/// Runs of more rows are computed in chunks, the others row by row.
inline constexpr int kMostStepRows = 32;
/// Rows of a run, on average, up to which a sweep is taken. A block of a sweep computes all rows of a run before the next matrix, so
/// long runs do not belong there.
inline constexpr std::int64_t kMostSweepRows = 8;

/// 64 rows of 64 f16 numbers, a row in 128 bytes whose pieces of 16 are swizzled as wgmma expects them: piece i of row r stands at
/// i ^ r % 8.
using ChunkTile = std::uint16_t[kStateChunk * 64];
constexpr int swizzled_byte(int row, int piece) { return row * 128 + ((piece ^ row % 8) << 4); }
static_assert(kStateChunk == 64);

/// Of the rows of a chunk. Keys and queries are those in ChunkKeys; S is the state before the chunk, U what the chunk writes.
struct ChunkFactors {
  float of_keys[kStateChunk];     ///< the delta rule: of K S in U
  float of_queries[kStateChunk];  ///< of Q S in the outputs, times their scale
  float to_end[kStateChunk];      ///< of U in the state after the chunk
  float of_outputs[kStateChunk];  ///< Mamba-2: 1 / the outputs' scale, that of A's rows
  float decay;                    ///< of S in the state after the chunk
  float largest_to_end;           ///< Mamba-2: of the rows
  float unused[30];
};
/// What the scan needs of a value head's chunk. A matrix has the outputs' or U's rows as its rows.
struct ChunkMatrices {
  alignas(128) ChunkTile t[kOperandParts];  ///< the delta rule: kTScale T
  ChunkTile a[kOperandParts];               ///< A, times the outputs' scale
  ChunkFactors factors;
};
/// And of a key head's: the columns 0 to 63, then 64 to 127, of keys and queries.
struct ChunkKeys {
  alignas(128) ChunkTile keys[2];
  ChunkTile queries[2];
};
/// Where both kernels find them, at place chunk - range.first.
struct ChunkOperands {
  ChunkMatrices* matrices;  ///< [chunk][value head]
  ChunkKeys* keys;          ///< [chunk][key head]
};
/// In the delta rule |T| <= 1, because a row writes no larger number into a state than it is given, and shrinks the others; and
/// |A| < 1 / sqrt(key_dim).
inline constexpr float kTScale = 1 << 12;
inline constexpr float kAScale = 1 << 14;

/// Chunks of long runs, counted over all runs of the step, that one pair of launches computes.
struct ChunkRange {
  int first;
  int n;
  bool overlaps;  ///< its first kernel runs beside the scan of the range before, whose operands stand elsewhere
};

/// Chunks of a run: at multiples of kStateChunk positions.
constexpr int chunks_of(const StateRun& run) {
  return run.n_rows > kMostStepRows ? (run.position % kStateChunk + run.n_rows + kStateChunk - 1) / kStateChunk : 0;
}
/// The first row of a chunk, counted from the run's first. That of the chunk after the last may be beyond the run.
constexpr int first_row_of(const StateRun& run, int chunk) {
  return chunk == 0 ? 0 : chunk * kStateChunk - run.position % kStateChunk;
}

struct ChunkScanParams {
  const std::byte* step;
  const void* values;         ///< bf16: of row 0 and head 0, heads contiguous
  std::int64_t values_width;  ///< from one row to the next
  const float* skip;          ///< Mamba-2: [n_heads]
  void* out;                  ///< [rows, n_heads, value_dim]
  DType out_dtype;
  MatricesOfLayer matrices;
  int n_heads;
  int n_key_heads;
  int value_dim;
};

/// Whether blocks have 128 columns of the values or 64.
constexpr bool has_pairs(const ChunkScanParams& params) { return params.value_dim % (2 * kChunkValueStep) == 0; }

/// The chunks that a step's only run has in a range, cut into pieces (the delta rule). Blocks go through the pieces side by side, twice:
/// what a piece does to a state is a map S' = M S + B, so that a first kernel computes M and B of every piece, from the identity and
/// from zero, a second one the states before all pieces, and the scan their outputs. That is over twice the work of the scan alone,
/// less where a head forgets soon: M and B depend only on the last chunks of a piece in which the state does not decay to zero.
struct ChunkPieces {
  int n = 1;
  int n_chunks = 0;         ///< of a piece; the last may have fewer, and pieces after it none
  float* states = nullptr;  ///< [piece][head, key_dim, value_dim]: those before the pieces
  float* maps = nullptr;    ///< [piece][head, column, row]: M
};
constexpr std::size_t bytes_of_piece(const ChunkScanParams& params) {
  return static_cast<std::size_t>(params.n_heads) * kChunkKeyDim * static_cast<std::size_t>(params.value_dim + kChunkKeyDim) *
         sizeof(float);
}

/// `n_runs`: the most runs of a step. A range that does not begin with a run's first chunk continues from the slot that the run
/// writes.
void launch_chunk_scan(const Device& device, ChunkRule rule, const ChunkScanParams& params, ChunkRange range,
                       const ChunkOperands& operands, std::int64_t n_runs, const ChunkPieces& pieces = {});
/// Maps of all pieces but the last.
void launch_chunk_maps(const Device& device, const ChunkScanParams& params, ChunkRange range, const ChunkOperands& operands,
                       const ChunkPieces& pieces);
/// The states before all pieces (chunk_pieces.cu).
void launch_piece_states(const Device& device, const ChunkScanParams& params, ChunkRange range, const ChunkPieces& pieces);

/// Memory for the operands of chunks: those of 8,192 rows of 48 value and 16 key heads, or more of fewer.
inline constexpr std::size_t kChunkBytes = 272 << 20;
constexpr std::size_t bytes_of_chunk(int n_heads, int n_key_heads) {
  return static_cast<std::size_t>(n_heads) * sizeof(ChunkMatrices) + static_cast<std::size_t>(n_key_heads) * sizeof(ChunkKeys);
}

/// The fewest chunks of a range, and the ranges that a long run is cut into.
inline constexpr int kFewestChunks = 16;
inline constexpr int kOverlappedRanges = 6;

/// The fewest pieces of a range, because they are over twice the work, and the fewest chunks of a range and of a piece.
inline constexpr int kFewestPieces = 3;
inline constexpr int kFewestChunksInPieces = 30;
inline constexpr int kFewestPieceChunks = 6;

/// From so many chunks a piece on, blocks have two warpgroups: the states between pieces take longer, all else is faster.
inline constexpr int kPairedPieceChunks = 8;

/// The pieces that a range of `n_chunks` is cut into, so that their blocks occupy all multiprocessors; 1: no pieces.
constexpr int pieces_of_range(const Device& device, const ChunkScanParams& params, int n_chunks) {
  const int n = device.n_multiprocessors / (params.n_heads * (params.value_dim / kChunkValueStep));
  if (n < kFewestPieces || n_chunks < kFewestChunksInPieces) return 1;
  if (has_pairs(params) && n_chunks >= 2 * n * kPairedPieceChunks) return 2 * n;
  return std::min(n, n_chunks / kFewestPieceChunks);
}

/// Computes the only run, of up to `n_chunks` chunks, in `n_pieces` pieces of each range.
template <class Prepare>
void compute_in_pieces(const Device& device, const ChunkScanParams& params, int n_chunks, int n_pieces,
                       std::span<std::byte> memory, Prepare&& prepare) {
  const std::size_t piece_bytes = static_cast<std::size_t>(n_pieces) * bytes_of_piece(params);
  const auto at_most = static_cast<int>((memory.size() - piece_bytes) / bytes_of_chunk(params.n_heads, params.n_key_heads));
  const int n_ranges = (n_chunks + at_most - 1) / at_most;
  const int at_once = (n_chunks + n_ranges - 1) / n_ranges;
  auto* states = reinterpret_cast<float*>(memory.data() + memory.size() - piece_bytes);
  const std::int64_t n_states = std::int64_t{n_pieces} * params.n_heads * kChunkKeyDim * params.value_dim;
  const ChunkPieces pieces{n_pieces, (at_once + n_pieces - 1) / n_pieces, states, states + n_states};
  auto* matrices = reinterpret_cast<ChunkMatrices*>(memory.data());
  const ChunkOperands operands{matrices, reinterpret_cast<ChunkKeys*>(matrices + std::int64_t{at_once} * params.n_heads)};
  for (int first = 0; first < n_chunks; first += at_once) {
    const ChunkRange range{first, std::min(at_once, n_chunks - first), false};
    prepare(range, operands);
    launch_chunk_maps(device, params, range, operands, pieces);
    launch_piece_states(device, params, range, pieces);
    launch_chunk_scan(device, ChunkRule::delta, params, range, operands, 1, pieces);
  }
}

/// Computes all runs of more than kMostStepRows rows, as many chunks at once as `memory` has room for. The chunks of a single run
/// are cut into ranges, because its scan leaves multiprocessors to the first kernel of the next range.
/// `prepare(range, operands)` launches the first kernel.
template <class Prepare>
void compute_in_chunks(const Device& device, ChunkRule rule, const ChunkScanParams& params, std::int64_t n_rows,
                       std::int64_t n_runs, std::span<std::byte> memory, Prepare&& prepare) {
  // A run of n rows has parts of at most n / kStateChunk + 2 chunks.
  const auto n_chunks = static_cast<int>(n_rows / kStateChunk + 2 * std::min(n_runs, n_rows / (kMostStepRows + 1)));
  const auto at_most = static_cast<int>(memory.size() / bytes_of_chunk(params.n_heads, params.n_key_heads));
  if (rule == ChunkRule::delta && n_runs == 1) {
    const int n_pieces = pieces_of_range(device, params, std::min(n_chunks, at_most));
    const bool fits = static_cast<std::size_t>(n_pieces) * bytes_of_piece(params) <= memory.size() / 2;
    if (n_pieces > 1 && fits) return compute_in_pieces(device, params, n_chunks, n_pieces, memory, prepare);
  }
  const bool overlaps = n_runs == 1 && at_most >= 2 * kFewestChunks;
  const int at_once = overlaps ? std::min(at_most / 2, std::max(kFewestChunks, n_chunks / kOverlappedRanges + 1)) : at_most;
  for (int first = 0; first < n_chunks; first += at_once) {
    const ChunkRange range{first, std::min(at_once, n_chunks - first), overlaps && first > 0};
    const std::size_t at = overlaps && first / at_once % 2 == 1 ? memory.size() / 2 / sizeof(ChunkMatrices) : 0;
    auto* matrices = reinterpret_cast<ChunkMatrices*>(memory.data()) + at;
    const ChunkOperands operands{matrices, reinterpret_cast<ChunkKeys*>(matrices + std::int64_t{at_once} * params.n_heads)};
    prepare(range, operands);
    launch_chunk_scan(device, rule, params, range, operands, n_runs);
  }
}

/// Whether blocks of the scan fit into the device's shared memory.
bool runs_chunk_scan(const Device& device);

}  // namespace baton::cuda
