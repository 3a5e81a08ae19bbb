/// The attention planner: makes a prefix tree of the block tables, runs that are read once of the tree, and items of
/// the runs.
#include "plan/attention_plan.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "plan/cost_model.h"
#include "plan/nodes.h"
#include "plan/pairs.h"
#include "plan/pieces.h"
#include "plan/tiles.h"

namespace baton {
namespace {

/// Positions of the shortest pieces of latent keys: with one KV head a run has no more pairs than pieces, and so many positions
/// have about the bytes of 256 positions of a KV head of 128. A little less than two stages, so that a run of an odd number of
/// stages may be cut into pairs of them.
constexpr std::int32_t kLeastLatentPiece = 120;

/// Steps of decodes and prompts take about so much of what is estimated with the tiles of kind 0, whose blocks hide much of their
/// items' fixed time, and what is estimated with those of kind 1 (bench/results/h200-mixed-steps.md).
constexpr double kMeasuredShare = 0.75;

/// A kind of tiles in a plan: what its kernel costs, and its part of the work.
struct TileKind {
  AttentionPlanOptions options;  ///< with the costs of its kernel
  std::optional<AttentionCostModel> model;
  PieceCutter cutter;
  CutResult cut;
  std::int32_t n_workers = 0;
  std::int32_t n_items = 0;
  std::int32_t n_item_major = 0;  ///< of its items
};
using TileKinds = std::array<TileKind, kTileKinds>;

/// The rows of the sequences, one after another, in the memory of the arguments.
LaidOutRows lay_out(std::span<const SequenceRows> sequences, const AttentionShape& shape, std::vector<std::int32_t>& first_row,
                    std::vector<std::int32_t>& sequence_of_row, std::vector<TokenRow>& rows) {
  std::int32_t n_rows = 0;
  first_row.clear();
  for (const SequenceRows& sequence : sequences) {
    check(sequence.n_rows >= 1 && sequence.n_rows <= sequence.kv_len,
          "plan_attention: a sequence without rows or with more rows than keys");
    check(static_cast<std::int64_t>(sequence.blocks.size()) * shape.block_len >= sequence.kv_len,
          "plan_attention: a block table shorter than its sequence");
    const std::int32_t kv_lo = shape.first_seen(sequence.kv_len - sequence.n_rows);
    check(sequence.first_block <= kv_lo / shape.block_len, "plan_attention: a sequence gave back a block that its rows see");
    first_row.push_back(n_rows);
    n_rows += sequence.n_rows;
  }
  first_row.push_back(n_rows);
  rows.resize(at(n_rows));
  sequence_of_row.resize(at(n_rows));
  TokenRow* row = rows.data();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const SequenceRows& sequence = sequences[i];
    for (std::int32_t position = sequence.kv_len - sequence.n_rows; position < sequence.kv_len; ++position) {
      const std::int32_t kv_lo = shape.first_seen(position);
      sequence_of_row[static_cast<std::size_t>(row - rows.data())] = static_cast<std::int32_t>(i);
      *row++ = {sequence.slot.value, position, kv_lo, position + 1};
    }
  }
  return {sequences, first_row, rows, sequence_of_row};
}

/// The largest kind of tiles of which most rows belong to sequences that fill over half of one.
std::size_t filled_kind(const LaidOutRows& rows, const AttentionShape& shape, const AttentionCosts& costs) {
  const std::int32_t group = shape.n_heads / shape.n_kv_heads;
  for (std::size_t kind = kMostTileKinds - 1; kind > 0; --kind) {
    const LargerTiles& tiles = costs.larger_tiles[kind - 1];
    if (!tiles.serve(shape)) continue;
    std::int32_t n_many = 0;
    for (const SequenceRows& sequence : rows.sequences)
      if (2 * sequence.n_rows * group > tiles.costs.row_tile_queries) n_many += sequence.n_rows;
    if (2 * n_many > rows.first_row.back()) return kind;
  }
  return 0;
}

/// True if a sequence fills at most half of a tile of the kind.
bool any_fills_little(const LaidOutRows& rows, const AttentionShape& shape, const LargerTiles& tiles) {
  const std::int32_t group = shape.n_heads / shape.n_kv_heads;
  return std::ranges::any_of(rows.sequences, [&](const SequenceRows& sequence) {
    return 2 * sequence.n_rows * group <= tiles.costs.row_tile_queries;
  });
}

/// The tiles that may serve shared runs beside those of `kind`, or null.
const LargerTiles* tiles_beside(std::size_t kind, const AttentionShape& shape, const AttentionPlanOptions& options) {
  if (kind + 1 == kMostTileKinds || options.batch_invariant || !options.deals_pairs) return nullptr;
  const LargerTiles& next = options.costs.larger_tiles[kind];
  return next.may_join(shape) ? &next : nullptr;
}

/// Which tiles read each node. Larger ones (if not null) may read those whose rows fill most of such a tile, while the main
/// tiles read the rest.
void choose_kinds(const LaidOutRows& rows, std::span<const PrefixNode> nodes, std::span<const NodeReport> tree,
                  const AttentionShape& shape, const LargerTiles* larger, std::vector<std::int8_t>& kinds) {
  const std::int32_t group = shape.n_heads / shape.n_kv_heads;
  kinds.clear();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const bool is_large = larger != nullptr && 4 * rows.n_rows_of(nodes[i]) * group >= 3 * larger->costs.row_tile_queries;
    kinds.push_back(tree[i].choice != NodeChoice::relayed ? kOwnTiles : is_large ? kLargerTiles : kMainTiles);
  }
}

/// The sum over the tiles of a kind.
template <class UsOf>
double sum_us(const PlanTiles& made, TileKindIndex kind, const UsOf& us_of) {
  double us = 0;
  for (const TileBatch& batch : made.batches[kind])
    for (const PlanTile& tile : std::span(made.tiles).subspan(at(batch.first_tile), at(batch.n_tiles))) us += us_of(tile);
  return us;
}

/// Gives each kernel its part of the device. Returns false where there are larger tiles and one kernel for all would be
/// faster.
bool share_out_workers(const PlanTiles& made, const AttentionShape& shape, const LargerTiles* tiles, TileKinds& kinds) {
  TileKind& larger = kinds[kLargerTiles];
  TileKind& main = kinds[kMainTiles];
  const AttentionCosts& costs = main.options.costs;
  larger.n_workers = 0;
  main.n_workers = costs.n_workers;
  if (made.batches[kLargerTiles].empty()) return true;
  const std::int32_t n_most = tiles->costs.n_workers;
  SharedWork work;
  work.larger_us = sum_us(made, kLargerTiles, [&](const PlanTile& tile) {
    return costs.item_us + larger.model->worker_key_us(tile.n_rows) * (tile.kv_end - tile.kv_begin) +
           larger.model->worker_partials_us(tile.n_rows);
  });
  // Few blocks read memory faster than their share of it, and hide most of an item's fixed time (bench/results/h200-fp8.md).
  work.other_us = sum_us(made, kMainTiles, [&](const PlanTile& tile) {
    return 0.25 * costs.item_us + 0.75 * (main.model->worker_key_us(tile.n_rows) * (tile.kv_end - tile.kv_begin) +
                                          main.model->worker_partials_us(tile.n_rows));
  });
  work.larger_us *= 1.0 * shape.n_kv_heads / n_most;
  work.other_us *= 1.0 * shape.n_kv_heads / costs.n_workers;
  larger.n_workers = larger_share(work, *tiles);
  main.n_workers -= larger.n_workers * (costs.n_workers / n_most);
  return larger.n_workers > 0;
}

void cut_tiles(PlanTiles& made, const AttentionShape& shape, double coarser, TileKinds& kinds) {
  for (std::size_t k = 0; k < kTileKinds; ++k)
    kinds[k].cut = kinds[k].cutter.cut(made.tiles, made.batches[k], made.n_shared[k], shape, kinds[k].options, *kinds[k].model,
                                       kinds[k].n_workers, coarser);
}

bool exceeds_limits(std::span<const PlanTile> tiles, const AttentionPlanOptions& options) {
  std::int64_t n_items = 0;
  std::int64_t n_partials = 0;
  for (const PlanTile& tile : tiles) {
    n_items += tile.n_pieces;
    if (!tile.is_direct()) n_partials += static_cast<std::int64_t>(tile.n_pieces) * tile.n_rows;
  }
  return n_items > options.max_items || n_partials > options.max_partials;
}

AttentionItem item_of(const PlanTile& tile, std::int32_t piece, std::int32_t block_len, bool batch_invariant) {
  AttentionItem item;
  item.first_row = tile.first_row;
  item.n_rows = tile.n_rows;
  item.kv_begin = tile.piece_begin(piece, batch_invariant);
  item.kv_end = tile.piece_begin(piece + 1, batch_invariant);
  item.block_list = tile.block_list + (item.kv_begin - tile.list_begin) / block_len;
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

/// Adds the items of tiles that start together.
void emit_batch(std::span<PlanTile> tiles, std::int32_t block_len, bool batch_invariant, AttentionPlan& plan) {
  std::int32_t most_pieces = 0;
  for (PlanTile& tile : tiles) {
    most_pieces = std::max(most_pieces, tile.n_pieces);
    tile.first_partial = plan.n_partials;
    if (!tile.is_direct()) plan.n_partials += tile.n_pieces * tile.n_rows;
  }
  for (std::int32_t piece = 0; piece < most_pieces; ++piece)
    for (const PlanTile& tile : tiles)
      if (piece < tile.n_pieces) plan.items.push_back(item_of(tile, piece, block_len, batch_invariant));
}

/// Adds the items of each kind's tiles, in the order in which they start.
void emit_items(PlanTiles& made, const AttentionShape& shape, TileKinds& kinds, AttentionPlan& plan) {
  plan.items.clear();
  plan.n_partials = 0;
  for (std::size_t k = 0; k < kTileKinds; ++k) {
    TileKind& kind = kinds[k];
    const auto first_item = static_cast<std::int32_t>(plan.items.size());
    const std::span<const TileBatch> batches = made.batches[k];
    const std::size_t n_item_major = kind.cutter.n_item_major(made.n_shared[k], shape.n_kv_heads, kind.cut.busy_us);
    kind.n_item_major = 0;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (i == n_item_major) kind.n_item_major = static_cast<std::int32_t>(plan.items.size()) - first_item;
      const TileBatch& batch = batches[kind.cutter.batch_at(i)];
      emit_batch(std::span(made.tiles).subspan(at(batch.first_tile), at(batch.n_tiles)), shape.block_len,
                 kind.options.batch_invariant, plan);
    }
    kind.n_items = static_cast<std::int32_t>(plan.items.size()) - first_item;
  }
  kinds[kLargerTiles].n_item_major = kinds[kLargerTiles].n_items;  // shared runs
  plan.n_larger_items = kinds[kLargerTiles].n_items;
  plan.n_item_major = kinds[kLargerTiles].n_items + kinds[kMainTiles].n_item_major;
}

/// One worker's time for one KV head of each item.
void time_items(std::span<const AttentionItem> items, const TileKind& kind, std::vector<double>& item_us) {
  item_us.resize(items.size());
  std::int32_t n_rows = 0;
  double key_us = 0;
  double partials_us = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const AttentionItem& item = items[i];
    if (item.n_rows != n_rows) {
      n_rows = item.n_rows;
      key_us = kind.model->worker_key_us(n_rows);
      partials_us = kind.model->worker_partials_us(n_rows);
    }
    const bool direct = (item.flags & AttentionItem::direct) != 0;
    item_us[i] = key_us * (item.kv_end - item.kv_begin) + kind.options.costs.item_us + (direct ? 0 : partials_us);
  }
}

/// Lists each row's partial states. The tiles of a row stand in the order of positions, so no sorting is needed.
void link_partials(std::span<const PlanTile> tiles, std::vector<std::int32_t>& next_input, AttentionPlan& plan) {
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

void count_bytes(const LaidOutRows& rows, std::span<const PlanTile> tiles, const AttentionShape& shape, std::int32_t row_tile,
                 AttentionPlanStats& stats) {
  std::int64_t n_requested = 0;
  for (const PlanTile& tile : tiles) n_requested += tile.kv_end - tile.kv_begin;
  std::int64_t n_plain = 0;
  for (std::size_t i = 0; i < rows.sequences.size(); ++i)
    for (std::int32_t row = rows.first_row[i]; row < rows.first_row[i + 1]; row += row_tile) {
      const std::int32_t last = std::min(row + row_tile, rows.first_row[i + 1]) - 1;
      n_plain += rows.rows[at(last)].kv_hi - rows.rows[at(row)].kv_lo;
    }
  stats.kv_bytes_requested = n_requested * shape.token_bytes();
  stats.kv_bytes_plain = n_plain * shape.token_bytes();
}

}  // namespace

std::int32_t larger_share(const SharedWork& work, const LargerTiles& tiles) {
  const std::int32_t n_all = tiles.costs.row_tile_queries > 0 ? tiles.costs.n_workers : 0;
  std::int32_t best = 0;
  // What both must fall below: the time of one kernel for all, less the gain.
  double best_us = (tiles.smaller_ratio * work.larger_us + work.other_us) * (1 - tiles.least_gain);
  for (std::int32_t n = 1; n < n_all; ++n) {
    const double larger_us = work.larger_us * n_all / n + tiles.launch_us;
    const double other_us = work.other_us * n_all / (n_all - n);
    if (std::max(larger_us, other_us) < best_us) {
      best = n;
      best_us = std::max(larger_us, other_us);
    }
    if (other_us > larger_us) break;
  }
  return best;
}

/// The plan, and memory that is kept from call to call.
struct AttentionPlanner::Work {
  AttentionPlan plan;
  std::vector<std::span<const BlockId>> tables;
  TableSorter sorter;
  std::vector<std::int32_t> first_row;
  std::vector<std::int32_t> sequence_of_row;
  NodeChooser chooser;
  std::vector<std::int8_t> kind_of_node;
  TileMaker tile_maker;
  PlanTiles made;
  TileKinds kinds;
  std::vector<double> item_us;
  PairDealer dealer;
  std::vector<std::int32_t> pairs, offsets;  // of the workers of a kind
  std::vector<std::int32_t> next_input;
  std::unique_ptr<Work> of_smaller_tiles;  ///< made with the first step in which two kinds of tiles are compared

  /// Makes tiles and shares out the workers. Returns false as share_out_workers does.
  bool make_tiles(const LaidOutRows& rows, const AttentionShape& shape, const LargerTiles* larger) {
    const std::array<std::int32_t, kTileKinds> row_tiles{kinds[kLargerTiles].model->row_tile(),
                                                         kinds[kMainTiles].model->row_tile()};
    tile_maker.make(rows, chooser.nodes(), kind_of_node, row_tiles, shape.block_len, made);
    return share_out_workers(made, shape, larger, kinds);
  }

  /// Deals the pairs of each kind that has items to its workers, one kind after another.
  void deal_pairs(const AttentionShape& shape) {
    plan.pairs.clear();
    plan.worker_offsets.clear();
    if (!kinds[kMainTiles].options.deals_pairs) return;
    plan.stats.makespan_us = 0;
    std::int32_t first_item = 0;
    for (std::size_t k = plan.n_larger_items > 0 ? kLargerTiles : kMainTiles; k < kTileKinds; ++k) {
      const TileKind& kind = kinds[k];
      time_items(std::span(plan.items).subspan(at(first_item), at(kind.n_items)), kind, item_us);
      const double us = dealer.deal(item_us, kind.n_item_major, shape.n_kv_heads, kind.n_workers, pairs, offsets);
      plan.stats.makespan_us = std::max(plan.stats.makespan_us, us);
      if (plan.worker_offsets.empty()) {
        plan.pairs.swap(pairs);
        plan.worker_offsets.swap(offsets);
      } else {
        const auto n_before = static_cast<std::int32_t>(plan.pairs.size());
        for (const std::int32_t pair : pairs) plan.pairs.push_back(first_item * shape.n_kv_heads + pair);
        plan.worker_offsets.pop_back();
        for (const std::int32_t offset : offsets) plan.worker_offsets.push_back(n_before + offset);
      }
      first_item += kind.n_items;
    }
  }

  /// Makes the plan for tiles of the largest kind that most rows fill or, where its estimate is shorter, of the kind before: the
  /// larger tiles compute a decode's own context at the cost of as many rows as they have.
  void make(std::span<const SequenceRows> sequences, const AttentionShape& shape, const AttentionPlanOptions& options) {
    const LaidOutRows rows = lay_out(sequences, shape, first_row, sequence_of_row, plan.rows);
    const std::size_t filled = filled_kind(rows, shape, options.costs);
    estimate(rows, shape, options, filled);
    if (filled > 0 && !options.batch_invariant && any_fills_little(rows, shape, options.costs.larger_tiles[filled - 1])) {
      Work& smaller = *(of_smaller_tiles ? of_smaller_tiles : of_smaller_tiles = std::make_unique<Work>());
      smaller.estimate(rows, shape, options, filled - 1);
      if (kMeasuredShare * smaller.plan.stats.makespan_us < plan.stats.makespan_us) {
        smaller.plan.rows.swap(plan.rows);  // `rows` is a view of them, wherever they are
        smaller.complete(rows, shape);
        return std::swap(plan, smaller.plan);
      }
    }
    complete(rows, shape);
  }

  /// Makes the items of the plan for one kind of tiles, deals them and estimates their time.
  void estimate(const LaidOutRows& rows, const AttentionShape& shape, const AttentionPlanOptions& options,
                std::size_t tile_kind) {
    TileKind& main = kinds[kMainTiles];
    plan.tile_kind = static_cast<std::int32_t>(tile_kind);
    const LargerTiles* const larger = tiles_beside(tile_kind, shape, options);
    for (TileKind& kind : kinds) {
      kind.options = options;
      kind.options.costs =
          options.costs.of_shape(shape).of_kind(&kind == &main || larger == nullptr ? tile_kind : tile_kind + 1);
      if (tile_kind > 0)
        kind.options.costs.query_granule = kind.options.costs.row_tile_queries;  // no tile takes less than a full one
      if (shape.latent_dim > 0)
        for (std::int32_t* const piece : {&kind.options.costs.min_piece, &kind.options.costs.min_piece_of_long})
          *piece = std::min(*piece, kLeastLatentPiece);
      kind.model.emplace(shape, kind.options.costs);
    }
    plan.row_tile = main.model->row_tile();
    chooser.choose(rows, shape, main.options, *main.model, plan.stats.tree);
    choose_kinds(rows, chooser.nodes(), plan.stats.tree, shape, larger, kind_of_node);
    if (!make_tiles(rows, shape, larger)) {
      std::ranges::replace(kind_of_node, kLargerTiles, kMainTiles);
      make_tiles(rows, shape, larger);
    }
    cut_tiles(made, shape, 1, kinds);
    bool is_over = exceeds_limits(made.tiles, options);
    // Over the limits: cut less (except in batch-invariant mode, where most cuts are fixed), then share nothing.
    for (double coarser = 2; is_over && !options.batch_invariant && coarser <= 1024; coarser *= 8) {
      cut_tiles(made, shape, coarser, kinds);
      is_over = exceeds_limits(made.tiles, options);
    }
    plan.stats.busy_us = std::max(kinds[kLargerTiles].cut.busy_us, main.cut.busy_us);
    plan.stats.makespan_us = std::max(kinds[kLargerTiles].cut.makespan_us, main.cut.makespan_us);
    if (is_over) {
      for (NodeReport& report : plan.stats.tree) report.choice = NodeChoice::no_room;
      std::ranges::fill(kind_of_node, kOwnTiles);
      make_tiles(rows, shape, larger);
      main.cutter.cut_nothing(made.tiles, made.batches[kMainTiles].size());
      check(!exceeds_limits(made.tiles, options), "plan_attention: leaves alone exceed the limits of items or partial states");
    }
    emit_items(made, shape, kinds, plan);
    plan.n_larger_workers = kinds[kLargerTiles].n_workers;
    deal_pairs(shape);
  }

  /// Adds to an estimated plan what no estimate needs.
  void complete(const LaidOutRows& rows, const AttentionShape& shape) {
    link_partials(made.tiles, next_input, plan);
    count_bytes(rows, made.tiles, shape, plan.row_tile, plan.stats);
    const std::int64_t n_lost = chooser.count_lost(rows, shape, *kinds[kMainTiles].model, plan.stats.tree);
    plan.stats.shareable_bytes_lost = n_lost * shape.token_bytes();
    plan.block_lists.swap(made.block_lists);
    plan.stats.nodes.swap(made.nodes);
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
  check(options.costs.query_granule >= 1 && options.costs.min_piece >= 1 && options.costs.min_piece_of_long >= 1,
        "plan_attention: costs without a granule of query rows or a shortest piece");
  work_->make(sequences, shape, options);
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

void append_plan(StepInput& step, const AttentionPlan& plan, int group) {
  step.append(SectionKind::rows, plan.rows, group);
  step.append(SectionKind::items, plan.items, group);
  step.append(SectionKind::block_lists, plan.block_lists, group);
  step.append(SectionKind::merge_offsets, plan.merge_offsets, group);
  step.append(SectionKind::merge_inputs, plan.merge_inputs, group);
  step.append(SectionKind::pairs, plan.pairs, group);
  step.append(SectionKind::worker_offsets, plan.worker_offsets, group);
  LayerGroupHeader& header = step.group(group);
  header.n_partials = plan.n_partials;
  for (std::size_t row = 0; plan.n_partials > 0 && row < plan.rows.size(); ++row)
    header.most_merge_inputs = std::max(header.most_merge_inputs, plan.merge_offsets[row + 1] - plan.merge_offsets[row]);
  header.n_item_major = plan.n_item_major;
  header.tile_kind = plan.tile_kind;
  header.n_larger_workers = plan.n_larger_workers;
}

std::string_view to_string(NodeChoice choice) {
  switch (choice) {
    case NodeChoice::relayed: return "relayed";
    case NodeChoice::costs_more: return "not relayed, costs more than it saves";
    case NodeChoice::merging_costs: return "not relayed, all such nodes save less than the merging they bring";
    case NodeChoice::outside_window: return "not relayed, outside every row's window";
    case NodeChoice::no_room: return "not relayed, the step's buffers are full";
  }
  check_failed("to_string: a choice that does not exist");
}

std::string to_string(const AttentionPlan& plan) {
  const AttentionPlanStats& stats = plan.stats;
  std::string text = fmt::format(
      "rows {}  items {}  partial states {}  KV bytes a layer: {} requested, {} as leaves, {} shared and read again\n"
      "estimated time: {:.1f} us if shared evenly, {:.1f} us to the end of the last worker\n",
      plan.rows.size(), plan.items.size(), plan.n_partials, stats.kv_bytes_requested, stats.kv_bytes_plain,
      stats.shareable_bytes_lost, stats.busy_us, stats.makespan_us);
  if (plan.n_larger_workers > 0)
    text += fmt::format("the first {} items in larger tiles, by {} of {} workers\n", plan.n_larger_items, plan.n_larger_workers,
                        plan.worker_offsets.size() - 1);
  for (const NodeReport& node : stats.tree)
    text += fmt::format("{:{}}node [{}, {})  sequences [{}, {})  {}: saves {:.2f} us, costs {:.2f} us\n", "",
                        2 * node.depth + 2, node.kv_begin, node.kv_end, node.first_sequence,
                        node.first_sequence + node.n_sequences, to_string(node.choice), node.saved_us, node.cost_us);
  for (const AttentionItem& item : plan.items)
    text += fmt::format("  item rows [{}, {})  keys [{}, {})  {}{}sequences {}\n", item.first_row, item.first_row + item.n_rows,
                        item.kv_begin, item.kv_end, (item.flags & AttentionItem::direct) != 0 ? "direct " : "",
                        (item.flags & AttentionItem::masked) != 0 ? "masked " : "", item.n_sequences);
  return text;
}

}  // namespace baton
