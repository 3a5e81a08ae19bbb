/// From choices about nodes to tiles.
#include "plan/tiles.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace baton {

/// Appends a table's blocks for positions [list_begin, list_end) to the lists. Returns the index of the first.
std::int32_t TileMaker::add_blocks(std::span<const BlockId> table, std::int32_t list_begin, std::int32_t list_end,
                                   PlanTiles& made) const {
  static_assert(sizeof(BlockId) == sizeof(std::int32_t));
  const auto list = static_cast<std::int32_t>(made.block_lists.size());
  const auto* first = reinterpret_cast<const std::int32_t*>(table.data()) + (list_begin >> block_shift_);
  made.block_lists.insert(made.block_lists.end(), first,
                          first + (((list_end - 1) >> block_shift_) + 1 - (list_begin >> block_shift_)));
  return list;
}

/// The same as add_tiles for the own context of a sequence with one row.
void TileMaker::add_tile_of_row(const LaidOutRows& rows, std::int32_t index, std::int32_t kv_begin, PlanTiles& made) const {
  const SequenceRows& sequence = rows.sequences[at(index)];
  const std::int32_t row = rows.first_row[at(index)];
  const std::int32_t kv_lo = rows.rows[at(row)].kv_lo;
  if (kv_begin >= sequence.kv_len) return;
  PlanTile& tile = made.tiles.emplace_back();
  tile.first_row = row;
  tile.n_rows = 1;
  tile.kv_begin = std::max(kv_begin, kv_lo);
  tile.kv_end = sequence.kv_len;
  tile.seen_from = kv_lo;
  tile.seen_until = sequence.kv_len;
  tile.settled_until = sequence.kv_len - 1;
  tile.n_sequences = 1;
  tile.list_begin = tile.kv_begin >> block_shift_ << block_shift_;
  tile.block_list = add_blocks(sequence.blocks, tile.list_begin, tile.kv_end, made);
}

/// Adds the run's block list, and tiles of at most row_tile rows that see some of the run, clipped to what they see.
void TileMaker::add_tiles(const LaidOutRows& rows, std::int32_t first_sequence, std::int32_t n_sequences, std::int32_t kv_begin,
                          std::int32_t kv_end, std::int32_t row_tile, PlanTiles& made) const {
  std::vector<PlanTile>& tiles = made.tiles;
  const std::int32_t end_row = rows.first_row[at(first_sequence + n_sequences)];
  const std::size_t first_tile = tiles.size();
  std::int32_t list_begin = kv_end;
  std::int32_t list_end = kv_begin;
  const auto sees = [&](std::int32_t row) { return rows.rows[at(row)].kv_lo < kv_end && rows.rows[at(row)].kv_hi > kv_begin; };
  for (std::int32_t row = rows.first_row[at(first_sequence)]; row < end_row;) {
    if (!sees(row)) {
      ++row;
      continue;
    }
    PlanTile tile;
    tile.first_row = row;
    tile.seen_until = tile.settled_until = std::numeric_limits<std::int32_t>::max();
    std::int32_t kv_lo = kv_end;
    std::int32_t kv_hi = kv_begin;
    for (; row < end_row && row - tile.first_row < row_tile && sees(row); ++row) {
      const TokenRow& bounds = rows.rows[at(row)];
      kv_lo = std::min(kv_lo, bounds.kv_lo);
      kv_hi = std::max(kv_hi, bounds.kv_hi);
      tile.seen_from = std::max(tile.seen_from, bounds.kv_lo);
      tile.seen_until = std::min(tile.seen_until, bounds.kv_hi);
      const SequenceRows& sequence = rows.sequences[at(rows.sequence_of_row[at(row)])];
      tile.settled_until = std::min(tile.settled_until, sequence.kv_len - sequence.n_rows);
    }
    tile.n_rows = row - tile.first_row;
    tile.kv_begin = std::max(kv_begin, kv_lo);
    tile.kv_end = std::min(kv_end, kv_hi);
    tile.n_sequences = rows.sequence_of_row[at(row - 1)] - rows.sequence_of_row[at(tile.first_row)] + 1;
    list_begin = std::min(list_begin, tile.kv_begin >> block_shift_ << block_shift_);
    list_end = std::max(list_end, tile.kv_end);
    tiles.push_back(tile);
  }
  if (tiles.size() == first_tile) return;
  // Of all sequences, the one that gave back least holds all that any row sees.
  const auto sharers = rows.sequences.subspan(at(first_sequence), at(n_sequences));
  const std::span<const BlockId> table = std::ranges::min_element(sharers, {}, &SequenceRows::first_block)->blocks;
  const std::int32_t list = add_blocks(table, list_begin, list_end, made);
  for (std::size_t i = first_tile; i < tiles.size(); ++i) {
    tiles[i].block_list = list;
    tiles[i].list_begin = list_begin;
  }
}

/// A row whose only item covers its whole context is written directly. Without shared runs every row has one tile. The
/// tiles of a row stand in the order of positions.
void TileMaker::find_lone_tiles(std::size_t n_rows, PlanTiles& made) {
  std::vector<PlanTile>& tiles = made.tiles;
  if (made.n_shared == std::array<std::size_t, kTileKinds>{}) {
    for (PlanTile& tile : tiles) tile.alone = tile.is_first = true;
    return;
  }
  tiles_of_row_.assign(n_rows, 0);
  for (PlanTile& tile : tiles) {
    tile.is_first = true;
    for (std::int32_t row = tile.first_row; row < tile.first_row + tile.n_rows; ++row)
      tile.is_first &= tiles_of_row_[at(row)]++ == 0;
  }
  for (PlanTile& tile : tiles) {
    const auto begin = tiles_of_row_.begin() + tile.first_row;
    tile.alone = std::all_of(begin, begin + tile.n_rows, [](std::int32_t n) { return n == 1; });
  }
}

void TileMaker::make(const LaidOutRows& rows, std::span<const PrefixNode> nodes, std::span<const std::int8_t> kinds,
                     const std::array<std::int32_t, kTileKinds>& row_tiles, std::int32_t block_len, PlanTiles& made) {
  block_shift_ = std::countr_zero(static_cast<std::uint32_t>(block_len));
  made.tiles.clear();
  for (std::vector<TileBatch>& batches : made.batches) batches.clear();
  made.block_lists.clear();
  made.nodes.clear();
  kv_begin_of_.assign(rows.sequences.size(), 0);
  n_relayed_above_.assign(nodes.size(), 0);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const PrefixNode& node = nodes[i];
    if (node.parent >= 0)
      n_relayed_above_[i] = n_relayed_above_[at(node.parent)] + (kinds[at(node.parent)] != kOwnTiles ? 1 : 0);
    if (kinds[i] == kOwnTiles) continue;
    const auto kind = static_cast<std::size_t>(kinds[i]);
    const std::int32_t kv_begin = kv_begin_of_[at(node.first_sequence)];
    for (std::int32_t s = node.first_sequence; s < node.first_sequence + node.n_sequences; ++s)
      kv_begin_of_[at(s)] = node.kv_end;
    made.nodes.push_back({kv_begin, node.kv_end, node.n_sequences, n_relayed_above_[i]});
    const auto first_tile = static_cast<std::int32_t>(made.tiles.size());
    add_tiles(rows, node.first_sequence, node.n_sequences, kv_begin, node.kv_end, row_tiles[kind], made);
    const auto n_tiles = static_cast<std::int32_t>(made.tiles.size()) - first_tile;
    if (n_tiles > 0) made.batches[kind].push_back({first_tile, n_tiles});
  }
  for (std::size_t kind = 0; kind < kTileKinds; ++kind) made.n_shared[kind] = made.batches[kind].size();
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(rows.sequences.size()); ++i) {
    const auto first_tile = static_cast<std::int32_t>(made.tiles.size());
    if (rows.sequences[at(i)].n_rows == 1)
      add_tile_of_row(rows, i, kv_begin_of_[at(i)], made);
    else
      add_tiles(rows, i, 1, kv_begin_of_[at(i)], rows.sequences[at(i)].kv_len, row_tiles[kMainTiles], made);
    for (auto tile = first_tile; tile < static_cast<std::int32_t>(made.tiles.size()); ++tile)
      made.batches[kMainTiles].push_back({tile, 1});
  }
  find_lone_tiles(rows.rows.size(), made);
}

}  // namespace baton
