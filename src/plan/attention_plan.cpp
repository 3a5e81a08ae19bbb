/// The attention planner: makes a prefix tree of the block tables, runs that are read once of the tree, and items of
/// the runs.
#include "plan/attention_plan.h"

#include <bit>
#include <limits>
#include <numeric>

#include "plan/cost_model.h"
#include "plan/kernel_shares.h"
#include "plan/nodes.h"
#include "plan/pairs.h"
#include "plan/pieces.h"

namespace baton {

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
  AttentionPlanOptions wide_options;          // with the costs of the kernel with wide tiles
  std::vector<bool> is_wide;                  // of each node: that kernel reads it, beside the other one
  std::vector<std::int32_t> kv_begin_of;      // where each sequence's own context begins
  std::vector<PlanTile> tiles;                // shared runs before the tiles below them, so a row's tiles ascend
  std::vector<TileBatch> batches;
  std::size_t n_shared_batches = 0;  // these batches come first
  PieceCutter cutter;
  double busy_us = 0;  // of these batches alone
  std::int32_t n_other_workers = 0;
  std::vector<TileBatch> wide_batches;
  PieceCutter wide_cutter;
  std::vector<double> item_us;
  PairDealer dealer;
  std::vector<std::int32_t> other_pairs, other_offsets;  // of the workers without wide tiles
  std::vector<std::int32_t> tiles_of_row;
  std::vector<std::int32_t> next_input;

  void make() {
    block_shift = std::countr_zero(static_cast<std::uint32_t>(shape.block_len));
    plan.stats.nodes.clear();
    plan.stats.kv_bytes_plain = plan.stats.kv_bytes_requested = plan.stats.shareable_bytes_lost = 0;
    lay_out_rows();
    wide_options = options;
    wide_options.costs = wide_costs(options.costs);
    plan.has_wide_tiles = fills_wide_tiles();
    if (plan.has_wide_tiles) options.costs = wide_options.costs;
    const AttentionCostModel model(shape, options.costs);
    const AttentionCostModel wide_model(shape, wide_options.costs);
    plan.row_tile = model.row_tile();
    chooser.choose(laid_out(), shape, options, model, plan.stats.tree);
    find_wide_nodes();
    make_tiles(model, wide_model);
    if (!share_out_workers(model, wide_model)) {
      is_wide.assign(is_wide.size(), false);
      make_tiles(model, wide_model);
    }
    cut(model, wide_model, 1);
    bool is_over = over_limits();
    // Over the limits: cut less (except in batch-invariant mode, where most cuts are fixed), then share nothing.
    for (double coarser = 2; is_over && !options.batch_invariant && coarser <= 1024; coarser *= 8) {
      cut(model, wide_model, coarser);
      is_over = over_limits();
    }
    if (is_over) {
      for (NodeReport& report : plan.stats.tree) report.choice = NodeChoice::no_room;
      make_tiles(model, wide_model);
      share_out_workers(model, wide_model);
      cutter.cut_nothing(tiles, batches.size());
      check(!over_limits(), "plan_attention: leaves alone exceed the limits of items or partial states");
    }
    emit_items();
    deal_pairs(model, wide_model);
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

  /// Whether most rows belong to sequences that fill over half of a wide tile.
  bool fills_wide_tiles() const {
    if (!wide_tiles_serve(options.costs, shape)) return false;
    const std::int32_t group = shape.n_heads / shape.n_kv_heads;
    std::int32_t n_many = 0;
    for (const SequenceRows& sequence : sequences)
      if (2 * sequence.n_rows * group > options.costs.wide_tile_queries) n_many += sequence.n_rows;
    return 2 * n_many > first_row.back();
  }

  LaidOutRows laid_out() const { return {sequences, first_row, plan.rows}; }
  bool is_relayed(std::size_t node) const { return plan.stats.tree[node].choice == NodeChoice::relayed; }

  /// Finds the nodes that the kernel with wide tiles may read while the other one reads the rest: those whose rows fill most
  /// of a wide tile.
  void find_wide_nodes() {
    const std::span<const PrefixNode> nodes = chooser.nodes();
    is_wide.assign(nodes.size(), false);
    const bool may_join = !plan.has_wide_tiles && !options.batch_invariant && options.deals_pairs;
    if (!may_join || !wide_tiles_join(options.costs, shape)) return;
    const std::int32_t group = shape.n_heads / shape.n_kv_heads;
    for (std::size_t i = 0; i < nodes.size(); ++i)
      is_wide[i] = is_relayed(i) && 4 * laid_out().n_rows_of(nodes[i]) * group >= 3 * options.costs.wide_tile_queries;
  }

  void make_tiles(const AttentionCostModel& model, const AttentionCostModel& wide_model) {
    tiles.clear();
    batches.clear();
    wide_batches.clear();
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
      add_tiles(node.first_sequence, node.n_sequences, kv_begin, node.kv_end, (is_wide[i] ? wide_model : model).row_tile());
      const auto n_tiles = static_cast<std::int32_t>(tiles.size()) - first_tile;
      if (n_tiles > 0) (is_wide[i] ? wide_batches : batches).push_back({first_tile, n_tiles});
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

  /// Gives each kernel its part of the device. Returns false where tiles are wide and one kernel for all would be faster.
  bool share_out_workers(const AttentionCostModel& model, const AttentionCostModel& wide_model) {
    const AttentionCosts& costs = options.costs;
    plan.n_wide_workers = 0;
    n_other_workers = costs.n_workers;
    if (wide_batches.empty()) return true;
    SharedWork work;
    for_each_tile(wide_batches, [&](const PlanTile& tile) {
      work.wide_us += costs.item_us + wide_model.worker_key_us(tile.n_rows) * (tile.kv_end - tile.kv_begin) +
                      wide_model.worker_partials_us(tile.n_rows);
    });
    // Few blocks read memory faster than their share of it, and hide most of an item's fixed time (bench/results/h200-fp8.md).
    for_each_tile(batches, [&](const PlanTile& tile) {
      work.other_us += 0.25 * costs.item_us + 0.75 * (model.worker_key_us(tile.n_rows) * (tile.kv_end - tile.kv_begin) +
                                                      model.worker_partials_us(tile.n_rows));
    });
    work.wide_us *= 1.0 * shape.n_kv_heads / wide_options.costs.n_workers;
    work.other_us *= 1.0 * shape.n_kv_heads / costs.n_workers;
    plan.n_wide_workers = wide_share(work, costs);
    n_other_workers -= plan.n_wide_workers * (costs.n_workers / costs.n_wide_workers);
    return plan.n_wide_workers > 0;
  }

  template <class Body>
  void for_each_tile(std::span<const TileBatch> some, const Body& body) const {
    for (const TileBatch& batch : some)
      for (const PlanTile& tile : std::span(tiles).subspan(at(batch.first_tile), at(batch.n_tiles))) body(tile);
  }

  /// A row whose only item covers its whole context is written directly. Without shared runs every row has one tile. The
  /// tiles of a row stand in the order of positions.
  void find_lone_tiles() {
    if (n_shared_batches == 0 && wide_batches.empty()) {
      for (PlanTile& tile : tiles) tile.alone = tile.is_first = true;
      return;
    }
    tiles_of_row.assign(plan.rows.size(), 0);
    for (PlanTile& tile : tiles) {
      tile.is_first = true;
      for (std::int32_t row = tile.first_row; row < tile.first_row + tile.n_rows; ++row)
        tile.is_first &= tiles_of_row[at(row)]++ == 0;
    }
    for (PlanTile& tile : tiles) {
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
    PlanTile& tile = tiles.emplace_back();
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
      PlanTile tile;
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

  void cut(const AttentionCostModel& model, const AttentionCostModel& wide_model, double coarser) {
    const CutResult wide = wide_cutter.cut(tiles, wide_batches, wide_batches.size(), shape, wide_options, wide_model,
                                           plan.n_wide_workers, coarser);
    const CutResult other = cutter.cut(tiles, batches, n_shared_batches, shape, options, model, n_other_workers, coarser);
    busy_us = other.busy_us;
    plan.stats.busy_us = std::max(wide.busy_us, other.busy_us);
    plan.stats.makespan_us = std::max(wide.makespan_us, other.makespan_us);
  }

  bool over_limits() const {
    std::int64_t n_items = 0;
    std::int64_t n_partials = 0;
    for (const PlanTile& tile : tiles) {
      n_items += tile.n_pieces;
      if (!tile.is_direct()) n_partials += static_cast<std::int64_t>(tile.n_pieces) * tile.n_rows;
    }
    return n_items > options.max_items || n_partials > options.max_partials;
  }

  void emit_items() {
    plan.items.clear();
    plan.n_partials = 0;
    plan.n_item_major = 0;
    for (std::size_t i = 0; i < wide_batches.size(); ++i) emit_batch(wide_batches[wide_cutter.batch_at(i)]);
    plan.n_wide_items = plan.n_item_major = static_cast<std::int32_t>(plan.items.size());
    const std::size_t n_item_major = cutter.n_item_major(n_shared_batches, shape.n_kv_heads, busy_us);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (i == n_item_major) plan.n_item_major = static_cast<std::int32_t>(plan.items.size());
      emit_batch(batches[cutter.batch_at(i)]);
    }
  }

  void emit_batch(const TileBatch& batch) {
    std::int32_t most_pieces = 0;
    for (std::int32_t t = batch.first_tile; t < batch.first_tile + batch.n_tiles; ++t) {
      PlanTile& tile = tiles[at(t)];
      most_pieces = std::max(most_pieces, tile.n_pieces);
      tile.first_partial = plan.n_partials;
      if (!tile.is_direct()) plan.n_partials += tile.n_pieces * tile.n_rows;
    }
    for (std::int32_t piece = 0; piece < most_pieces; ++piece)
      for (std::int32_t t = batch.first_tile; t < batch.first_tile + batch.n_tiles; ++t)
        if (piece < tiles[at(t)].n_pieces) plan.items.push_back(item_of(tiles[at(t)], piece));
  }

  AttentionItem item_of(const PlanTile& tile, std::int32_t piece) const {
    AttentionItem item;
    item.first_row = tile.first_row;
    item.n_rows = tile.n_rows;
    item.kv_begin = tile.piece_begin(piece, options.batch_invariant);
    item.kv_end = tile.piece_begin(piece + 1, options.batch_invariant);
    item.block_list = tile.block_list + ((item.kv_begin - tile.list_begin) >> block_shift);
    item.n_sequences = tile.n_sequences;
    if (tile.is_direct()) {
      item.flags |= AttentionItem::direct;
    } else {
      item.first_partial = tile.first_partial + piece * tile.n_rows;
    }
    if (tile.seen_from > item.kv_begin || tile.seen_until < item.kv_end) item.flags |= AttentionItem::masked;
    const std::int32_t n_settled = tile.settled_until / 16 - item.kv_begin / 16;  // in whole granules of 16 positions
    item.flags |= std::clamp(n_settled, 0, AttentionItem::kMostSettled) << AttentionItem::kSettledShift;
    return item;
  }

  void deal_pairs(const AttentionCostModel& model, const AttentionCostModel& wide_model) {
    plan.pairs.clear();
    plan.worker_offsets.clear();
    if (!options.deals_pairs) return;
    const auto n_items = static_cast<std::int32_t>(plan.items.size());
    if (plan.n_wide_items == 0) {
      plan.stats.makespan_us = deal(model, 0, n_items, plan.n_item_major, n_other_workers, plan.pairs, plan.worker_offsets);
      return;
    }
    const double wide_us =
        deal(wide_model, 0, plan.n_wide_items, plan.n_wide_items, plan.n_wide_workers, plan.pairs, plan.worker_offsets);
    const double other_us = deal(model, plan.n_wide_items, n_items, plan.n_item_major - plan.n_wide_items, n_other_workers,
                                 other_pairs, other_offsets);
    plan.stats.makespan_us = std::max(wide_us, other_us);
    const auto n_wide_pairs = static_cast<std::int32_t>(plan.pairs.size());
    for (const std::int32_t pair : other_pairs) plan.pairs.push_back(plan.n_wide_items * shape.n_kv_heads + pair);
    plan.worker_offsets.pop_back();
    for (const std::int32_t offset : other_offsets) plan.worker_offsets.push_back(n_wide_pairs + offset);
  }

  /// PairDealer::deal for items [first, end), which count from 0 in the pairs. Returns when the last worker ends.
  double deal(const AttentionCostModel& model, std::int32_t first, std::int32_t end, std::int32_t n_item_major,
              std::int32_t n_workers, std::vector<std::int32_t>& pairs, std::vector<std::int32_t>& offsets) {
    item_us.resize(at(end - first));
    std::int32_t n_rows = 0;
    double key_us = 0;
    double partials_us = 0;
    for (std::size_t i = 0; i < item_us.size(); ++i) {
      const AttentionItem& item = plan.items[at(first) + i];
      if (item.n_rows != n_rows) {
        n_rows = item.n_rows;
        key_us = model.worker_key_us(n_rows);
        partials_us = model.worker_partials_us(n_rows);
      }
      const bool direct = (item.flags & AttentionItem::direct) != 0;
      item_us[i] = key_us * (item.kv_end - item.kv_begin) + options.costs.item_us + (direct ? 0 : partials_us);
    }
    return dealer.deal(item_us, n_item_major, shape.n_kv_heads, n_workers, pairs, offsets);
  }

  /// Lists each row's partial states. The tiles of a row stand in the order of positions, so no sorting is needed.
  void link_partials() {
    plan.merge_offsets.assign(plan.rows.size() + 1, 0);
    for (const PlanTile& tile : tiles) {
      if (tile.is_direct()) continue;
      for (std::int32_t i = 0; i < tile.n_rows; ++i) plan.merge_offsets[at(tile.first_row + i) + 1] += tile.n_pieces;
    }
    std::partial_sum(plan.merge_offsets.begin(), plan.merge_offsets.end(), plan.merge_offsets.begin());
    plan.merge_inputs.resize(at(plan.n_partials));
    next_input.assign(plan.merge_offsets.begin(), plan.merge_offsets.end() - 1);
    for (const PlanTile& tile : tiles) {
      if (tile.is_direct()) continue;
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
    for (const PlanTile& tile : tiles) n_requested += tile.kv_end - tile.kv_begin;
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
