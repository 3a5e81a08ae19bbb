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

/// `n_runs`: the most runs of a step. A range that does not begin with a run's first chunk continues from the slot that the run
/// writes.
void launch_chunk_scan(const Device& device, ChunkRule rule, const ChunkScanParams& params, ChunkRange range,
                       const ChunkOperands& operands, std::int64_t n_runs);

/// Memory for the operands of chunks: those of 8,192 rows of 48 value and 16 key heads, or more of fewer.
inline constexpr std::size_t kChunkBytes = 272 << 20;
constexpr std::size_t bytes_of_chunk(int n_heads, int n_key_heads) {
  return static_cast<std::size_t>(n_heads) * sizeof(ChunkMatrices) + static_cast<std::size_t>(n_key_heads) * sizeof(ChunkKeys);
}

/// The fewest chunks of a range, and the ranges that a long run is cut into.
inline constexpr int kFewestChunks = 16;
inline constexpr int kOverlappedRanges = 6;

/// Computes all runs of more than kMostStepRows rows, as many chunks at once as `memory` has room for. The chunks of a single run
/// are cut into ranges, because its scan leaves multiprocessors to the first kernel of the next range.
/// `prepare(range, operands)` launches the first kernel.
template <class Prepare>
void compute_in_chunks(const Device& device, ChunkRule rule, const ChunkScanParams& params, std::int64_t n_rows,
                       std::int64_t n_runs, std::span<std::byte> memory, Prepare&& prepare) {
  // A run of n rows has parts of at most n / kStateChunk + 2 chunks.
  const auto n_chunks = static_cast<int>(n_rows / kStateChunk + 2 * std::min(n_runs, n_rows / (kMostStepRows + 1)));
  const auto at_most = static_cast<int>(memory.size() / bytes_of_chunk(params.n_heads, params.n_key_heads));
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
