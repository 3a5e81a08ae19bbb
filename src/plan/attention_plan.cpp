/// The attention planner: makes a prefix tree of the block tables, runs that are read once of the tree, and items of
/// the runs.
#include "plan/attention_plan.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "plan/cost_model.h"
#include "plan/cuts.h"
#include "plan/nodes.h"
#include "plan/pairs.h"

namespace baton {
namespace {

std::int32_t ceil_div(std::int32_t a, std::int32_t b) { return (a + b - 1) / b; }

/// A tile: token rows that read a run together, and the part of the run that they see.
struct Tile {
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
};

/// Tiles that start together: one tile of a context, or all tiles of a shared run. The latter start piece by piece, so
/// that the second tile that reads a piece finds it in the cache.
struct Batch {
  std::int32_t first_tile = 0;
  std::int32_t n_tiles = 0;
};

}  // namespace

/// The working memory of planning, reused from call to call. The member functions stand in the order in which they
/// run.
struct AttentionPlanner::Work {
  AttentionPlan plan;
  std::vector<std::span<const BlockId>> tables;
  TableSorter sorter;

  std::span<const SequenceRows> sequences;
  AttentionShape shape;
  AttentionPlanOptions options;
  int block_shift = 0;                  // block_len is a power of two, because it divides kAttentionChunk
  std::vector<std::int32_t> first_row;  // of each sequence; one more element for the end
  std::vector<std::int32_t> sequence_of_row;
  NodeChooser chooser;
  std::vector<std::int32_t> n_relayed_above;  // of each node
  std::vector<std::int32_t> kv_begin_of;      // where each sequence's own context begins
  std::vector<Tile> tiles;                    // shared runs before the tiles below them, so a row's tiles ascend
  std::vector<Batch> batches;
  std::size_t n_shared_batches = 0;  // these batches come first
  std::vector<std::uint64_t> batch_keys;
  std::vector<CutRun> cut_runs;
  std::vector<CutRun> sorted_runs;
  RunCutter cutter;
  std::vector<double> item_us;
  PairDealer dealer;
  std::vector<std::int32_t> tiles_of_row;
  std::vector<std::int32_t> next_input;

  void make() {
    block_shift = std::countr_zero(static_cast<std::uint32_t>(shape.block_len));
    plan.stats.nodes.clear();
    plan.stats.kv_bytes_plain = plan.stats.kv_bytes_requested = plan.stats.shareable_bytes_lost = 0;
    lay_out_rows();
    plan.has_wide_tiles = fills_wide_tiles();
    if (plan.has_wide_tiles) options.costs = wide_costs(options.costs);
    const AttentionCostModel model(shape, options.costs);
    plan.row_tile = model.row_tile();
    chooser.choose(laid_out(), shape, options, model, plan.stats.tree);
    make_tiles(model);
    cut(model, 1);
    bool is_over = over_limits();
    // Over the limits: cut less (except in batch-invariant mode, where cuts are fixed), then share nothing.
    for (double coarser = 2; is_over && !options.batch_invariant && coarser <= 1024; coarser *= 8) {
      cut(model, coarser);
      is_over = over_limits();
    }
    if (is_over) {
      for (NodeReport& report : plan.stats.tree) report.choice = NodeChoice::no_room;
      make_tiles(model);
      cut_nothing();
      check(!over_limits(), "plan_attention: leaves alone exceed the limits of items or partial states");
    }
    emit_items();
    deal_pairs(model);
    link_partials();
    fill_stats(model);
  }

  void lay_out_rows() {
    std::int32_t n_rows = 0;
    first_row.clear();
    for (const SequenceRows& sequence : sequences) {
      check(sequence.n_rows >= 1 && sequence.n_rows <= sequence.kv_len,
            "plan_attention: a sequence without rows or with more rows than keys");
      check(static_cast<std::int64_t>(sequence.blocks.size()) * shape.block_len >= sequence.kv_len,
            "plan_attention: a block table shorter than its sequence");
      const std::int32_t kv_lo = shape.window > 0 ? std::max(0, sequence.kv_len - sequence.n_rows + 1 - shape.window) : 0;
      check(sequence.first_block <= kv_lo >> block_shift, "plan_attention: a sequence gave back a block that its rows see");
      first_row.push_back(n_rows);
      n_rows += sequence.n_rows;
    }
    first_row.push_back(n_rows);
    plan.rows.resize(at(n_rows));
    sequence_of_row.resize(at(n_rows));
    TokenRow* row = plan.rows.data();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const SequenceRows& sequence = sequences[i];
      for (std::int32_t position = sequence.kv_len - sequence.n_rows; position < sequence.kv_len; ++position) {
        const std::int32_t kv_lo = shape.window > 0 ? std::max(0, position + 1 - shape.window) : 0;
        sequence_of_row[static_cast<std::size_t>(row - plan.rows.data())] = static_cast<std::int32_t>(i);
        *row++ = {sequence.slot.value, position, kv_lo, position + 1};
      }
    }
  }

  /// Whether most rows belong to sequences that fill over half of a wide tile. In batch-invariant mode a row's kernel may
  /// not depend on others.
  bool fills_wide_tiles() const {
    if (!wide_tiles_serve(options.costs, shape) || options.batch_invariant) return false;
    const std::int32_t group = shape.n_heads / shape.n_kv_heads;
    std::int32_t n_many = 0;
    for (const SequenceRows& sequence : sequences)
      if (2 * sequence.n_rows * group > options.costs.wide_tile_queries) n_many += sequence.n_rows;
    return 2 * n_many > first_row.back();
  }

  LaidOutRows laid_out() const { return {sequences, first_row, plan.rows}; }
  bool is_relayed(std::size_t node) const { return plan.stats.tree[node].choice == NodeChoice::relayed; }

  void make_tiles(const AttentionCostModel& model) {
    tiles.clear();
    batches.clear();
    plan.block_lists.clear();
    plan.stats.nodes.clear();
    kv_begin_of.assign(sequences.size(), 0);
    const std::span<const PrefixNode> nodes = chooser.nodes();
    n_relayed_above.assign(nodes.size(), 0);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const PrefixNode& node = nodes[i];
      if (node.parent >= 0) n_relayed_above[i] = n_relayed_above[at(node.parent)] + (is_relayed(at(node.parent)) ? 1 : 0);
      if (!is_relayed(i)) continue;
      const std::int32_t kv_begin = kv_begin_of[at(node.first_sequence)];
      for (std::int32_t s = node.first_sequence; s < node.first_sequence + node.n_sequences; ++s)
        kv_begin_of[at(s)] = node.kv_end;
      plan.stats.nodes.push_back({kv_begin, node.kv_end, node.n_sequences, n_relayed_above[i]});
      const auto first_tile = static_cast<std::int32_t>(tiles.size());
      add_tiles(node.first_sequence, node.n_sequences, kv_begin, node.kv_end, model.row_tile());
      const auto n_tiles = static_cast<std::int32_t>(tiles.size()) - first_tile;
      if (n_tiles > 0) batches.push_back({first_tile, n_tiles});
    }
    n_shared_batches = batches.size();
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(sequences.size()); ++i) {
      const auto first_tile = static_cast<std::int32_t>(tiles.size());
      if (sequences[at(i)].n_rows == 1)
        add_tile_of_row(i, kv_begin_of[at(i)]);
      else
        add_tiles(i, 1, kv_begin_of[at(i)], sequences[at(i)].kv_len, model.row_tile());
      for (auto tile = first_tile; tile < static_cast<std::int32_t>(tiles.size()); ++tile) batches.push_back({tile, 1});
    }
    find_lone_tiles();
  }

  /// A row whose only item covers its whole context is written directly. Without shared runs every row has one tile. The
  /// tiles of a row stand in the order of positions.
  void find_lone_tiles() {
    if (n_shared_batches == 0) {
      for (Tile& tile : tiles) tile.alone = tile.is_first = true;
      return;
    }
    tiles_of_row.assign(plan.rows.size(), 0);
    for (Tile& tile : tiles) {
      tile.is_first = true;
      for (std::int32_t row = tile.first_row; row < tile.first_row + tile.n_rows; ++row)
        tile.is_first &= tiles_of_row[at(row)]++ == 0;
    }
    for (Tile& tile : tiles) {
      const auto begin = tiles_of_row.begin() + tile.first_row;
      tile.alone = std::all_of(begin, begin + tile.n_rows, [](std::int32_t n) { return n == 1; });
    }
  }

  /// Appends a table's blocks for positions [list_begin, list_end) to the lists. Returns the index of the first.
  std::int32_t add_blocks(std::span<const BlockId> table, std::int32_t list_begin, std::int32_t list_end) {
    static_assert(sizeof(BlockId) == sizeof(std::int32_t));
    const auto list = static_cast<std::int32_t>(plan.block_lists.size());
    const auto* first = reinterpret_cast<const std::int32_t*>(table.data()) + (list_begin >> block_shift);
    plan.block_lists.insert(plan.block_lists.end(), first,
                            first + (((list_end - 1) >> block_shift) + 1 - (list_begin >> block_shift)));
    return list;
  }

  /// The same as add_tiles for the own context of a sequence with one row.
  void add_tile_of_row(std::int32_t index, std::int32_t kv_begin) {
    const SequenceRows& sequence = sequences[at(index)];
    const std::int32_t row = first_row[at(index)];
    const std::int32_t kv_lo = plan.rows[at(row)].kv_lo;
    if (kv_begin >= sequence.kv_len) return;
    Tile& tile = tiles.emplace_back();
    tile.first_row = row;
    tile.n_rows = 1;
    tile.kv_begin = std::max(kv_begin, kv_lo);
    tile.kv_end = sequence.kv_len;
    tile.seen_from = kv_lo;
    tile.seen_until = sequence.kv_len;
    tile.settled_until = sequence.kv_len - 1;
    tile.n_sequences = 1;
    tile.list_begin = tile.kv_begin >> block_shift << block_shift;
    tile.block_list = add_blocks(sequence.blocks, tile.list_begin, tile.kv_end);
  }

  /// Adds the run's block list, and tiles of at most row_tile rows that see some of the run, clipped to what they see.
  void add_tiles(std::int32_t first_sequence, std::int32_t n_sequences, std::int32_t kv_begin, std::int32_t kv_end,
                 std::int32_t row_tile) {
    const std::int32_t end_row = first_row[at(first_sequence + n_sequences)];
    const std::size_t first_tile = tiles.size();
    std::int32_t list_begin = kv_end;
    std::int32_t list_end = kv_begin;
    const auto sees = [&](std::int32_t row) {
      return plan.rows[at(row)].kv_lo < kv_end && plan.rows[at(row)].kv_hi > kv_begin;
    };
    for (std::int32_t row = first_row[at(first_sequence)]; row < end_row;) {
      if (!sees(row)) {
        ++row;
        continue;
      }
      Tile tile;
      tile.first_row = row;
      tile.seen_until = tile.settled_until = std::numeric_limits<std::int32_t>::max();
      std::int32_t kv_lo = kv_end;
      std::int32_t kv_hi = kv_begin;
      for (; row < end_row && row - tile.first_row < row_tile && sees(row); ++row) {
        const TokenRow& bounds = plan.rows[at(row)];
        kv_lo = std::min(kv_lo, bounds.kv_lo);
        kv_hi = std::max(kv_hi, bounds.kv_hi);
        tile.seen_from = std::max(tile.seen_from, bounds.kv_lo);
        tile.seen_until = std::min(tile.seen_until, bounds.kv_hi);
        const SequenceRows& sequence = sequences[at(sequence_of_row[at(row)])];
        tile.settled_until = std::min(tile.settled_until, sequence.kv_len - sequence.n_rows);
      }
      tile.n_rows = row - tile.first_row;
      tile.kv_begin = std::max(kv_begin, kv_lo);
      tile.kv_end = std::min(kv_end, kv_hi);
      tile.n_sequences = sequence_of_row[at(row - 1)] - sequence_of_row[at(tile.first_row)] + 1;
      list_begin = std::min(list_begin, tile.kv_begin >> block_shift << block_shift);
      list_end = std::max(list_end, tile.kv_end);
      tiles.push_back(tile);
    }
    if (tiles.size() == first_tile) return;
    // Of all sequences, the one that gave back least holds all that any row sees.
    const auto sharers = sequences.subspan(at(first_sequence), at(n_sequences));
    const std::span<const BlockId> table = std::ranges::min_element(sharers, {}, &SequenceRows::first_block)->blocks;
    const std::int32_t list = add_blocks(table, list_begin, list_end);
    for (std::size_t i = first_tile; i < tiles.size(); ++i) {
      tiles[i].block_list = list;
      tiles[i].list_begin = list_begin;
    }
  }

  CutRun cut_run_of(const Batch& batch, const AttentionCostModel& model) const {
    CutRun run;
    run.pairs_a_piece = batch.n_tiles * shape.n_kv_heads;
    run.fixed_us = options.costs.item_us;
    for (std::int32_t i = batch.first_tile; i < batch.first_tile + batch.n_tiles; ++i) {
      const Tile& tile = tiles[at(i)];
      run.n_keys = std::max(run.n_keys, tile.kv_end - tile.kv_begin);
      run.always_partial |= !tile.alone;
    }
    const std::int32_t n_rows = tiles[at(batch.first_tile)].n_rows;
    run.key_us = model.worker_key_us(n_rows);
    run.partial_us = model.worker_partials_us(n_rows);
    run.max_pieces = std::max(1, run.n_keys / options.costs.min_piece);
    return run;
  }

  /// Sorts the batches and chooses their cuts.
  void cut(const AttentionCostModel& model, double coarser) {
    cut_runs.resize(batches.size());
    for (std::size_t i = 0; i < batches.size(); ++i) cut_runs[i] = cut_run_of(batches[i], model);
    // The order of the cut before comes first: as long as the same sequences decode, it is the right one.
    if (batch_keys.size() != batches.size()) {
      batch_keys.resize(batches.size());
      std::iota(batch_keys.begin(), batch_keys.end(), std::uint64_t{0});
    }
    for (std::uint64_t& key : batch_keys) {
      const std::uint64_t i = key & 0xffffffffu;
      // Shared runs first; in each group the longest first. The bits of positive floats sort as the floats do.
      const auto us = static_cast<float>(cut_runs[i].key_us * cut_runs[i].n_keys);
      const std::uint64_t descending = 0x7fffffffu - std::bit_cast<std::uint32_t>(us);
      key = (i < n_shared_batches ? 0 : std::uint64_t{1} << 63) | (descending << 32) | i;
    }
    if (!std::ranges::is_sorted(batch_keys)) std::ranges::sort(batch_keys);
    sorted_runs.resize(batches.size());
    for (std::size_t i = 0; i < batches.size(); ++i) sorted_runs[i] = cut_runs[batch_keys[i] & 0xffffffffu];
    const CutResult result = cutter.cut(sorted_runs, options.costs.n_workers, coarser);
    plan.stats.busy_us = result.busy_us;
    plan.stats.makespan_us = result.makespan_us;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const Batch& batch = batches[batch_keys[i] & 0xffffffffu];
      for (std::int32_t t = batch.first_tile; t < batch.first_tile + batch.n_tiles; ++t) {
        Tile& tile = tiles[at(t)];
        const std::int32_t n_keys = tile.kv_end - tile.kv_begin;
        if (options.batch_invariant) {
          // States are folded chunk by chunk, and folds do not associate: only a row's first piece may have several.
          const std::int32_t n_chunks = (tile.kv_end - 1) / kAttentionChunk - tile.kv_begin / kAttentionChunk + 1;
          tile.first_chunks = tile.is_first ? ceil_div(n_chunks, sorted_runs[i].n_pieces) : 1;
          tile.n_pieces = 1 + n_chunks - tile.first_chunks;
        } else {
          tile.n_pieces = std::min(sorted_runs[i].n_pieces, ceil_div(n_keys, kCutGrain));
        }
      }
    }
  }

  void cut_nothing() {
    batch_keys.resize(batches.size());
    std::iota(batch_keys.begin(), batch_keys.end(), std::uint64_t{0});
    for (Tile& tile : tiles) tile.n_pieces = 1;
  }

  bool over_limits() const {
    std::int64_t n_items = 0;
    std::int64_t n_partials = 0;
    for (const Tile& tile : tiles) {
      n_items += tile.n_pieces;
      if (!is_direct(tile)) n_partials += static_cast<std::int64_t>(tile.n_pieces) * tile.n_rows;
    }
    return n_items > options.max_items || n_partials > options.max_partials;
  }

  static bool is_direct(const Tile& tile) { return tile.alone && tile.n_pieces == 1; }

  /// The first position of piece `index` of a tile; index n_pieces gives the end of the tile.
  std::int32_t piece_begin(const Tile& tile, std::int32_t index) const {
    if (index == 0) return tile.kv_begin;
    if (index == tile.n_pieces) return tile.kv_end;
    if (options.batch_invariant) return (tile.kv_begin / kAttentionChunk + tile.first_chunks + index - 1) * kAttentionChunk;
    const std::int64_t n_stages = ceil_div(tile.kv_end - tile.kv_begin, kCutGrain);
    return tile.kv_begin + static_cast<std::int32_t>(n_stages * index / tile.n_pieces) * kCutGrain;
  }

  void emit_items() {
    plan.items.clear();
    plan.n_partials = 0;
    plan.n_item_major = 0;
    const std::size_t n_item_major = n_item_major_batches();
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const Batch& batch = batches[batch_keys[i] & 0xffffffffu];
      if (i == n_item_major) plan.n_item_major = static_cast<std::int32_t>(plan.items.size());
      std::int32_t most_pieces = 0;
      for (std::int32_t t = batch.first_tile; t < batch.first_tile + batch.n_tiles; ++t) {
        Tile& tile = tiles[at(t)];
        most_pieces = std::max(most_pieces, tile.n_pieces);
        tile.first_partial = plan.n_partials;
        if (!is_direct(tile)) plan.n_partials += tile.n_pieces * tile.n_rows;
      }
      for (std::int32_t piece = 0; piece < most_pieces; ++piece)
        for (std::int32_t t = batch.first_tile; t < batch.first_tile + batch.n_tiles; ++t)
          if (piece < tiles[at(t)].n_pieces) plan.items.push_back(item_of(tiles[at(t)], piece));
    }
  }

  /// Number of leading batches that must start with all heads at once. If heads run one after the other, the items of
  /// the last head start when all work but that head's share is done. An item may start so late only if it is not
  /// longer than that share, or if all items have about the same length.
  std::size_t n_item_major_batches() const {
    std::size_t n = n_shared_batches;
    if (cut_runs.size() != batches.size() || n == batches.size()) return n;
    const auto piece_us = [&](const CutRun& run) { return run.key_us * run.n_keys / run.n_pieces + run.fixed_us; };
    double shortest_us = std::numeric_limits<double>::infinity();
    for (std::size_t i = n; i < batches.size(); ++i) shortest_us = std::min(shortest_us, piece_us(sorted_runs[i]));
    const double may_wait_us = std::max(plan.stats.busy_us / shape.n_kv_heads, 1.1 * shortest_us);
    for (std::size_t i = n; i < batches.size(); ++i)
      if (piece_us(sorted_runs[i]) > may_wait_us) n = i + 1;
    return n;
  }

  AttentionItem item_of(const Tile& tile, std::int32_t piece) const {
    AttentionItem item;
    item.first_row = tile.first_row;
    item.n_rows = tile.n_rows;
    item.kv_begin = piece_begin(tile, piece);
    item.kv_end = piece_begin(tile, piece + 1);
    item.block_list = tile.block_list + ((item.kv_begin - tile.list_begin) >> block_shift);
    item.n_sequences = tile.n_sequences;
    if (is_direct(tile)) {
      item.flags |= AttentionItem::direct;
    } else {
      item.first_partial = tile.first_partial + piece * tile.n_rows;
    }
    if (tile.seen_from > item.kv_begin || tile.seen_until < item.kv_end) item.flags |= AttentionItem::masked;
    const std::int32_t n_settled = tile.settled_until / 16 - item.kv_begin / 16;  // in whole granules of 16 positions
    item.flags |= std::clamp(n_settled, 0, AttentionItem::kMostSettled) << AttentionItem::kSettledShift;
    return item;
  }

  void deal_pairs(const AttentionCostModel& model) {
    plan.pairs.clear();
    plan.worker_offsets.clear();
    if (!options.deals_pairs) return;
    item_us.resize(plan.items.size());
    std::int32_t n_rows = 0;
    double key_us = 0;
    double partials_us = 0;
    for (std::size_t i = 0; i < plan.items.size(); ++i) {
      const AttentionItem& item = plan.items[i];
      if (item.n_rows != n_rows) {
        n_rows = item.n_rows;
        key_us = model.worker_key_us(n_rows);
        partials_us = model.worker_partials_us(n_rows);
      }
      const bool direct = (item.flags & AttentionItem::direct) != 0;
      item_us[i] = key_us * (item.kv_end - item.kv_begin) + options.costs.item_us + (direct ? 0 : partials_us);
    }
    plan.stats.makespan_us =
        dealer.deal(item_us, plan.n_item_major, shape.n_kv_heads, options.costs.n_workers, plan.pairs, plan.worker_offsets);
  }

  /// Lists each row's partial states. The tiles of a row stand in the order of positions, so no sorting is needed.
  void link_partials() {
    plan.merge_offsets.assign(plan.rows.size() + 1, 0);
    for (const Tile& tile : tiles) {
      if (is_direct(tile)) continue;
      for (std::int32_t i = 0; i < tile.n_rows; ++i) plan.merge_offsets[at(tile.first_row + i) + 1] += tile.n_pieces;
    }
    std::partial_sum(plan.merge_offsets.begin(), plan.merge_offsets.end(), plan.merge_offsets.begin());
    plan.merge_inputs.resize(at(plan.n_partials));
    next_input.assign(plan.merge_offsets.begin(), plan.merge_offsets.end() - 1);
    for (const Tile& tile : tiles) {
      if (is_direct(tile)) continue;
      for (std::int32_t i = 0; i < tile.n_rows; ++i) {
        std::int32_t& next = next_input[at(tile.first_row + i)];
        for (std::int32_t piece = 0; piece < tile.n_pieces; ++piece)
          plan.merge_inputs[at(next++)] = tile.first_partial + piece * tile.n_rows + i;
      }
    }
  }

  void fill_stats(const AttentionCostModel& model) {
    AttentionPlanStats& stats = plan.stats;
    std::int64_t n_requested = 0;
    for (const Tile& tile : tiles) n_requested += tile.kv_end - tile.kv_begin;
    std::int64_t n_plain = 0;
    for (std::size_t i = 0; i < sequences.size(); ++i)
      for (std::int32_t row = first_row[i]; row < first_row[i + 1]; row += model.row_tile()) {
        const std::int32_t last = std::min(row + model.row_tile(), first_row[i + 1]) - 1;
        n_plain += plan.rows[at(last)].kv_hi - plan.rows[at(row)].kv_lo;
      }
    stats.kv_bytes_requested = n_requested * shape.token_bytes();
    stats.kv_bytes_plain = n_plain * shape.token_bytes();
    stats.shareable_bytes_lost = chooser.count_lost(laid_out(), shape, model, stats.tree) * shape.token_bytes();
  }
};

AttentionPlanner::AttentionPlanner() : work_(std::make_unique<Work>()) {}
AttentionPlanner::~AttentionPlanner() = default;
AttentionPlanner::AttentionPlanner(AttentionPlanner&&) noexcept = default;
AttentionPlanner& AttentionPlanner::operator=(AttentionPlanner&&) noexcept = default;

std::span<const std::int32_t> AttentionPlanner::order(std::span<const SequenceRows> sequences) {
  work_->tables.clear();
  for (const SequenceRows& sequence : sequences) work_->tables.push_back(sequence.blocks);
  return work_->sorter.sort(work_->tables);
}

const AttentionPlan& AttentionPlanner::plan(std::span<const SequenceRows> sequences, const AttentionShape& shape,
                                            const AttentionPlanOptions& options) {
  check(shape.n_kv_heads > 0 && shape.n_heads % shape.n_kv_heads == 0,
        "plan_attention: query heads are not a multiple of KV heads");
  check(shape.block_len >= 16 && kAttentionChunk % shape.block_len == 0,
        "plan_attention: the block length must divide 256 and be at least 16");
  check(options.costs.row_tile >= 1 && options.costs.n_workers >= 1, "plan_attention: costs without a row tile or workers");
  check(options.costs.query_granule >= 1 && options.costs.min_piece >= 1,
        "plan_attention: costs without a granule of query rows or a shortest piece");
  work_->sequences = sequences;
  work_->shape = shape;
  work_->options = options;
  work_->make();
  return work_->plan;
}

std::vector<std::int32_t> depth_first_order(std::span<const SequenceRows> sequences) {
  AttentionPlanner planner;
  const auto order = planner.order(sequences);
  return {order.begin(), order.end()};
}

AttentionPlan plan_attention(std::span<const SequenceRows> sequences, const AttentionShape& shape,
                             const AttentionPlanOptions& options) {
  AttentionPlanner planner;
  planner.plan(sequences, shape, options);
  return std::move(planner.work_->plan);
}

}  // namespace baton
