/// Tiles of a plan, and how they are cut into the pieces that become items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/attention_plan.h"
#include "plan/cost_model.h"
#include "plan/cuts.h"

namespace baton {

/// A tile: token rows that read a run together, and the part of the run that they see.
struct PlanTile {
  std::int32_t first_row = 0;
  std::int32_t n_rows = 0;
  std::int32_t kv_begin = 0;
  std::int32_t kv_end = 0;
  std::int32_t seen_from = 0;  ///< all rows see positions [seen_from, seen_until)
  std::int32_t seen_until = 0;
  std::int32_t settled_until = 0;  ///< keys before this position were stored by earlier steps
  std::int32_t block_list = 0;     ///< index of the block of position list_begin
  std::int32_t list_begin = 0;
  std::int32_t n_sequences = 0;
  std::int32_t n_pieces = 1;
  std::int32_t first_chunks = 1;  ///< chunks of the first piece in batch-invariant mode; the other pieces have one
  std::int32_t first_partial = 0;
  bool alone = false;     ///< its rows have no other tile
  bool is_first = false;  ///< its rows have no tile before it

  /// Whether its only item covers all that its rows see, so that it writes outputs and no partial states.
  bool is_direct() const { return alone && n_pieces == 1; }
  /// The first position of piece `index`; index n_pieces gives the end of the tile.
  std::int32_t piece_begin(std::int32_t index, bool batch_invariant) const;
};

/// Tiles that start together: one tile of a context, or all tiles of a shared run. The latter start piece by piece, so
/// that the second tile that reads a piece finds it in the cache.
struct TileBatch {
  std::int32_t first_tile = 0;
  std::int32_t n_tiles = 0;
};

/// Positions of the shortest pieces into which a run of `n_keys` is cut: those of the costs, and in batch-invariant mode at least
/// one chunk.
std::int32_t least_piece(std::int32_t n_keys, const AttentionPlanOptions& options);

/// Puts the batches of a step in order and chooses the number of pieces of each tile. Reuses its memory.
class PieceCutter {
 public:
  /// Sorts the batches, whose first n_shared are shared runs, and sets each tile's n_pieces and first_chunks. n_workers and
  /// `coarser` as in RunCutter::cut.
  CutResult cut(std::span<PlanTile> tiles, std::span<const TileBatch> batches, std::size_t n_shared,
                const AttentionShape& shape, const AttentionPlanOptions& options, const AttentionCostModel& model,
                std::int32_t n_workers, double coarser);
  /// Leaves every tile whole and the batches in their own order.
  void cut_nothing(std::span<PlanTile> tiles, std::size_t n_batches);

  /// The index of the batch that starts as the i-th.
  std::size_t batch_at(std::size_t i) const { return order_[i] & 0xffffffffu; }
  /// Number of leading batches that must start with all heads at once. If heads run one after the other, the items of
  /// the last head start when all work but that head's share is done. An item may start so late only if it is not
  /// longer than that share, or if all items have about the same length.
  std::size_t n_item_major(std::size_t n_shared, std::int32_t n_kv_heads, double busy_us) const;

 private:
  void sort(std::size_t n_shared);

  std::vector<std::uint64_t> order_;  ///< the batches as they start: sort keys, with the index in the low 32 bits
  std::vector<CutRun> runs_;          ///< of each batch
  std::vector<CutRun> sorted_;        ///< as the batches start
  RunCutter cutter_;
};

}  // namespace baton
