/// The attention planner: block tables to a prefix tree, the tree to units that are read once, units to items.
#include "kernels/attention_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace baton {
namespace {

/// A run of keys that all rows of neighbouring sequences read together. A sequence's own context is a unit of one sequence.
struct Unit {
  std::int32_t first_sequence = 0;
  std::int32_t n_sequences = 0;
  std::int32_t kv_begin = 0;
  std::int32_t kv_end = 0;
};

/// A node of the prefix tree: positions [kv_begin, kv_end) that sequences [first, first + n) share. Sequences without a child
/// node of their own are leaves below it.
struct Node {
  std::int32_t first_sequence = 0;
  std::int32_t n_sequences = 0;
  std::int32_t kv_begin = 0;
  std::int32_t kv_end = 0;
  std::vector<std::int32_t> children;
};

std::int32_t ceil_div(std::int32_t a, std::int32_t b) { return (a + b - 1) / b; }

/// Blocks that every row of a sequence sees to their end, so that sharing them needs no mask for causality.
std::int32_t n_shareable_blocks(const SequenceRows& sequence, std::int32_t block_len) {
  return (sequence.kv_len - sequence.n_rows + 1) / block_len;
}

std::int32_t common_blocks(const SequenceRows& a, const SequenceRows& b, std::int32_t block_len) {
  const std::int32_t limit = std::min(n_shareable_blocks(a, block_len), n_shareable_blocks(b, block_len));
  const auto mismatch = std::mismatch(a.blocks.begin(), a.blocks.begin() + limit, b.blocks.begin());
  return static_cast<std::int32_t>(mismatch.first - a.blocks.begin());
}

/// Plans one layer group; the steps stand in the order they run.
class Planner {
 public:
  Planner(std::span<const SequenceRows> sequences, const AttentionShape& shape, const AttentionPlanOptions& options)
      : sequences_(sequences), shape_(shape), options_(options) {}

  AttentionPlan make() {
    lay_out_rows();
    if (options_.relay) build_tree();
    choose_units();
    const double target_us = cut_target_us();
    emit_items(target_us);
    // Over the limits: cut less (never in batch-invariant mode, where cuts are fixed), then share nothing.
    for (double factor = 2; over_limits() && !options_.batch_invariant && factor <= 1024; factor *= 8)
      emit_items(target_us * factor);
    if (over_limits()) {
      nodes_.clear();
      roots_.clear();
      choose_units();
      emit_items(std::numeric_limits<double>::infinity());
    }
    check(!over_limits(), "plan_attention: leaves alone exceed the limits of items or partial states");
    link_partials();
    fill_stats();
    return std::move(plan_);
  }

 private:
  void lay_out_rows() {
    first_row_.reserve(sequences_.size() + 1);
    for (const SequenceRows& sequence : sequences_) {
      check(sequence.n_rows >= 1 && sequence.n_rows <= sequence.kv_len,
            "plan_attention: a sequence without rows or with more rows than keys");
      check(static_cast<std::int64_t>(sequence.blocks.size()) * shape_.block_len >= sequence.kv_len,
            "plan_attention: a block table shorter than its sequence");
      first_row_.push_back(static_cast<std::int32_t>(plan_.rows.size()));
      for (std::int32_t position = sequence.kv_len - sequence.n_rows; position < sequence.kv_len; ++position) {
        const std::int32_t kv_lo = shape_.window > 0 ? std::max(0, position + 1 - shape_.window) : 0;
        plan_.rows.push_back({sequence.slot.value, position, kv_lo, position + 1});
      }
    }
    first_row_.push_back(static_cast<std::int32_t>(plan_.rows.size()));
  }

  /// Nodes from the common prefixes of neighbours: an interval [a, b] with least common prefix L is a node that ends at L.
  void build_tree() {
    const auto n = static_cast<std::int32_t>(sequences_.size());
    std::vector<std::int32_t> common(sequences_.size(), 0);  // with the next sequence, in positions
    for (std::int32_t i = 0; i + 1 < n; ++i) {
      common[static_cast<std::size_t>(i)] = common_blocks(at(i), at(i + 1), shape_.block_len) * shape_.block_len;
      if (options_.batch_invariant)
        common[static_cast<std::size_t>(i)] -= common[static_cast<std::size_t>(i)] % kAttentionChunk;
    }
    roots_ = nodes_below(common, 0, n, 0);
  }

  /// Nodes of sequences [begin, end), which share everything before position `kv_begin`.
  std::vector<std::int32_t> nodes_below(std::span<const std::int32_t> common, std::int32_t begin, std::int32_t end,
                                        std::int32_t kv_begin) {
    std::vector<std::int32_t> made;
    for (std::int32_t first = begin; first + 1 < end;) {
      std::int32_t last = first;  // the run of neighbours that share more than kv_begin
      std::int32_t shared = std::numeric_limits<std::int32_t>::max();
      while (last + 1 < end && common[static_cast<std::size_t>(last)] > kv_begin)
        shared = std::min(shared, common[static_cast<std::size_t>(last++)]);
      if (last == first) {
        ++first;
        continue;
      }
      Node node{first, last - first + 1, kv_begin, shared, {}};
      node.children = nodes_below(common, first, last + 1, shared);
      nodes_.push_back(std::move(node));
      made.push_back(static_cast<std::int32_t>(nodes_.size()) - 1);
      first = last + 1;
    }
    return made;
  }

  void choose_units() {
    units_.clear();
    plan_.stats = {};
    std::vector<Unit> top = units_below(roots_, 0, static_cast<std::int32_t>(sequences_.size()), 0);
    units_.insert(units_.end(), top.begin(), top.end());
  }

  /// The units of sequences [begin, end) from `kv_begin` on that have no relayed node above them yet: a parent that does not
  /// pay is folded into them by moving their begin. Finished units go to units_.
  std::vector<Unit> units_below(std::span<const std::int32_t> children, std::int32_t begin, std::int32_t end,
                                std::int32_t kv_begin) {
    std::vector<Unit> top;
    std::int32_t next = begin;
    const auto add_leaves = [&](std::int32_t until) {
      for (; next < until; ++next) top.push_back({next, 1, kv_begin, at(next).kv_len});
    };
    for (const std::int32_t child : children) {
      const Node& node = nodes_[static_cast<std::size_t>(child)];
      add_leaves(node.first_sequence);
      next = node.first_sequence + node.n_sequences;
      std::vector<Unit> below = units_below(node.children, node.first_sequence, next, node.kv_end);
      if (pays(node, below)) {
        units_.insert(units_.end(), below.begin(), below.end());
        top.push_back({node.first_sequence, node.n_sequences, node.kv_begin, node.kv_end});
      } else {
        for (Unit& unit : below) unit.kv_begin = node.kv_begin;
        plan_.stats.shareable_bytes_lost += lost_reads(node, below) * (node.kv_end - node.kv_begin) * shape_.token_bytes();
        top.insert(top.end(), below.begin(), below.end());
      }
    }
    add_leaves(end);
    return top;
  }

  std::int32_t n_rows_of(std::int32_t first_sequence, std::int32_t n_sequences) const {
    return first_row_[static_cast<std::size_t>(first_sequence + n_sequences)] -
           first_row_[static_cast<std::size_t>(first_sequence)];
  }
  std::int64_t n_reads(const auto& run) const {
    return ceil_div(n_rows_of(run.first_sequence, run.n_sequences), options_.costs.row_tile);
  }
  std::int64_t lost_reads(const Node& node, std::span<const Unit> below) const {
    std::int64_t reads = -n_reads(node);
    for (const Unit& unit : below) reads += n_reads(unit);
    return reads;
  }

  /// Reading the node once against reading it with each unit below, at the rate of the level a re-read comes from, less what
  /// the node's own item and partial states cost (attention.md 2.4: bytes, not tokens).
  bool pays(const Node& node, std::span<const Unit> below) const {
    const AttentionCosts& costs = options_.costs;
    const double run_bytes = static_cast<double>(node.kv_end - node.kv_begin) * static_cast<double>(shape_.token_bytes());
    const double rate =
        run_bytes <= 0.7 * static_cast<double>(costs.cache_bytes) ? costs.cache_bytes_per_us : costs.memory_bytes_per_us;
    const double saved_us = static_cast<double>(lost_reads(node, below)) * run_bytes / rate;
    const double n_rows = n_rows_of(node.first_sequence, node.n_sequences);
    const double partial_bytes = n_rows * shape_.n_heads * (4.0 * shape_.head_dim + 8) * 2;
    return saved_us > partial_bytes / costs.partial_bytes_per_us + costs.item_us * static_cast<double>(n_reads(node));
  }

  /// Time of one KV head's share of rows x keys.
  double head_us(std::int64_t n_rows, std::int64_t n_keys) const {
    const double bytes = 2.0 * static_cast<double>(n_keys) * shape_.head_dim * shape_.kv_element_bytes;
    const double queries_a_head = static_cast<double>(shape_.n_heads) / shape_.n_kv_heads;
    const double flops = 4.0 * static_cast<double>(n_rows * n_keys) * queries_a_head * shape_.head_dim;
    // The rates are the whole device's: one worker has its share of them.
    const double share = options_.costs.n_workers;
    return std::max(bytes * share / options_.costs.memory_bytes_per_us, flops * share / options_.costs.flops_per_us);
  }

  /// An item (for one KV head) over this is cut: a quarter of what each worker has to do.
  double cut_target_us() const {
    double total_us = 0;
    for (const Unit& unit : units_)
      total_us += head_us(n_rows_of(unit.first_sequence, unit.n_sequences), unit.kv_end - unit.kv_begin);
    return std::max(total_us * shape_.n_kv_heads / (4.0 * options_.costs.n_workers), 4.0 * options_.costs.item_us);
  }

  bool over_limits() const {
    return static_cast<std::int64_t>(plan_.items.size()) > options_.max_items || n_partials_needed_ > options_.max_partials;
  }

  void emit_items(double target_us) {
    plan_.items.clear();
    plan_.block_lists.clear();
    // A row is written directly if one item is all it has; that needs the number of items of each row first.
    std::vector<std::int32_t> runs_of_row(plan_.rows.size(), 0);
    for (const Unit& unit : units_)
      for_each_tile(unit, [&](std::int32_t begin, std::int32_t end, std::int32_t, std::int32_t) {
        for (std::int32_t row = begin; row < end; ++row) runs_of_row[static_cast<std::size_t>(row)]++;
      });
    for (const Unit& unit : units_) emit_unit(unit, target_us, runs_of_row);
    n_partials_needed_ = 0;
    for (const AttentionItem& item : plan_.items)
      if ((item.flags & AttentionItem::direct) == 0) n_partials_needed_ += item.n_rows;
  }

  /// Calls body(first row, end row, kv_begin, kv_end) for each tile of at most row_tile rows that see something of the unit,
  /// the run clipped to what they see. Tiles of a sequence's own context never mix sequences, because a unit has one.
  template <class Body>
  void for_each_tile(const Unit& unit, Body body) const {
    const std::int32_t end_row = first_row_[static_cast<std::size_t>(unit.first_sequence + unit.n_sequences)];
    std::int32_t row = first_row_[static_cast<std::size_t>(unit.first_sequence)];
    while (row < end_row) {
      const auto sees = [&](std::int32_t r) {
        const TokenRow& token_row = plan_.rows[static_cast<std::size_t>(r)];
        return token_row.kv_lo < unit.kv_end && token_row.kv_hi > unit.kv_begin;
      };
      while (row < end_row && !sees(row)) ++row;
      const std::int32_t tile_begin = row;
      std::int32_t kv_lo = unit.kv_end;
      std::int32_t kv_hi = unit.kv_begin;
      for (; row < end_row && row - tile_begin < options_.costs.row_tile && sees(row); ++row) {
        kv_lo = std::min(kv_lo, plan_.rows[static_cast<std::size_t>(row)].kv_lo);
        kv_hi = std::max(kv_hi, plan_.rows[static_cast<std::size_t>(row)].kv_hi);
      }
      if (row > tile_begin) body(tile_begin, row, std::max(unit.kv_begin, kv_lo), std::min(unit.kv_end, kv_hi));
    }
  }

  void emit_unit(const Unit& unit, double target_us, std::span<const std::int32_t> runs_of_row) {
    const std::int32_t first_block = unit.kv_begin / shape_.block_len;
    const std::int32_t end_block = ceil_div(unit.kv_end, shape_.block_len);
    const auto list = static_cast<std::int32_t>(plan_.block_lists.size());
    for (std::int32_t block = first_block; block < end_block; ++block)
      plan_.block_lists.push_back(at(unit.first_sequence).blocks[static_cast<std::size_t>(block)].value);

    for_each_tile(unit, [&](std::int32_t begin, std::int32_t end, std::int32_t kv_begin, std::int32_t kv_end) {
      const bool alone =
          std::all_of(runs_of_row.begin() + begin, runs_of_row.begin() + end, [](std::int32_t runs) { return runs == 1; });
      const double cost = head_us(end - begin, kv_end - kv_begin);
      const bool cut = cost > target_us;
      std::int32_t piece_len = kv_end - kv_begin;
      if (options_.batch_invariant) {
        if (cut || !alone) piece_len = kAttentionChunk;
      } else if (cut) {
        const auto n_pieces = static_cast<std::int32_t>(std::ceil(cost / target_us));
        piece_len = std::max(kAttentionChunk, ceil_div(ceil_div(kv_end - kv_begin, n_pieces), kCutGrain) * kCutGrain);
      }
      for (std::int32_t from = kv_begin; from < kv_end;) {
        // In batch-invariant mode a cut is at an absolute multiple of the chunk, wherever the run begins.
        std::int32_t to = from + piece_len;
        if (options_.batch_invariant && piece_len == kAttentionChunk) to = (from / kAttentionChunk + 1) * kAttentionChunk;
        to = std::min(to, kv_end);
        AttentionItem item;
        item.first_row = begin;
        item.n_rows = end - begin;
        item.block_list = list + from / shape_.block_len - first_block;
        item.kv_begin = from;
        item.kv_end = to;
        item.n_sequences = n_sequences_of_rows(begin, end);
        if (alone && from == kv_begin && to == kv_end) item.flags |= AttentionItem::direct;
        for (std::int32_t row = begin; row < end; ++row) {
          const TokenRow& token_row = plan_.rows[static_cast<std::size_t>(row)];
          if (token_row.kv_lo > from || token_row.kv_hi < to) item.flags |= AttentionItem::masked;
        }
        plan_.items.push_back(item);
        from = to;
      }
    });
  }

  std::int32_t n_sequences_of_rows(std::int32_t begin, std::int32_t end) const {
    const auto sequence_of = [&](std::int32_t row) {
      return std::upper_bound(first_row_.begin(), first_row_.end(), row) - first_row_.begin();
    };
    return static_cast<std::int32_t>(sequence_of(end - 1) - sequence_of(begin)) + 1;
  }

  /// Numbers the partial states and lists each row's in the order of positions.
  void link_partials() {
    std::vector<std::int32_t> by_position(plan_.items.size());
    std::iota(by_position.begin(), by_position.end(), 0);
    std::stable_sort(by_position.begin(), by_position.end(), [&](std::int32_t a, std::int32_t b) {
      return plan_.items[static_cast<std::size_t>(a)].kv_begin < plan_.items[static_cast<std::size_t>(b)].kv_begin;
    });
    plan_.n_partials = 0;
    std::vector<std::int32_t> count(plan_.rows.size(), 0);
    for (AttentionItem& item : plan_.items) {
      if ((item.flags & AttentionItem::direct) != 0) continue;
      item.first_partial = plan_.n_partials;
      plan_.n_partials += item.n_rows;
      for (std::int32_t i = 0; i < item.n_rows; ++i) count[static_cast<std::size_t>(item.first_row + i)]++;
    }
    plan_.merge_offsets.assign(plan_.rows.size() + 1, 0);
    std::partial_sum(count.begin(), count.end(), plan_.merge_offsets.begin() + 1);
    plan_.merge_slots.resize(static_cast<std::size_t>(plan_.n_partials));
    std::vector<std::int32_t> next(plan_.merge_offsets.begin(), plan_.merge_offsets.end() - 1);
    for (const std::int32_t index : by_position) {
      const AttentionItem& item = plan_.items[static_cast<std::size_t>(index)];
      if ((item.flags & AttentionItem::direct) != 0) continue;
      for (std::int32_t i = 0; i < item.n_rows; ++i)
        plan_.merge_slots[static_cast<std::size_t>(next[static_cast<std::size_t>(item.first_row + i)]++)] =
            item.first_partial + i;
    }
  }

  void fill_stats() {
    AttentionPlanStats& stats = plan_.stats;
    for (const AttentionItem& item : plan_.items)
      stats.kv_bytes_requested += (item.kv_end - item.kv_begin) * shape_.token_bytes();
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(sequences_.size()); ++i)
      for_each_tile({i, 1, 0, at(i).kv_len}, [&](std::int32_t, std::int32_t, std::int32_t kv_begin, std::int32_t kv_end) {
        stats.kv_bytes_plain += (kv_end - kv_begin) * shape_.token_bytes();
      });
    for (const Unit& unit : units_)
      if (unit.n_sequences > 1) stats.nodes.push_back({unit.kv_begin, unit.kv_end, unit.n_sequences, 0});
    std::sort(stats.nodes.begin(), stats.nodes.end(),
              [](const RelayNode& a, const RelayNode& b) { return a.kv_begin < b.kv_begin; });
    for (const Unit& unit : units_)
      if (unit.n_sequences > 1) set_depth(unit);
  }

  void set_depth(const Unit& unit) {
    std::int32_t depth = 0;
    for (const Unit& above : units_)
      if (above.n_sequences > 1 && above.kv_end <= unit.kv_begin && above.first_sequence <= unit.first_sequence &&
          unit.first_sequence < above.first_sequence + above.n_sequences)
        ++depth;
    for (RelayNode& node : plan_.stats.nodes)
      if (node.kv_begin == unit.kv_begin && node.kv_end == unit.kv_end && node.n_sequences == unit.n_sequences)
        node.depth = depth;
  }

  const SequenceRows& at(std::int32_t index) const { return sequences_[static_cast<std::size_t>(index)]; }

  /// Cuts outside batch-invariant mode are multiples of this many positions (whole tiles of every executor).
  static constexpr std::int32_t kCutGrain = 64;

  std::span<const SequenceRows> sequences_;
  AttentionShape shape_;
  AttentionPlanOptions options_;
  AttentionPlan plan_;
  std::vector<std::int32_t> first_row_;  // of each sequence, and the end
  std::vector<Node> nodes_;
  std::vector<std::int32_t> roots_;
  std::vector<Unit> units_;
  std::int64_t n_partials_needed_ = 0;
};

}  // namespace

std::vector<std::int32_t> depth_first_order(std::span<const SequenceRows> sequences) {
  std::vector<std::int32_t> order(sequences.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const auto& left = sequences[static_cast<std::size_t>(a)].blocks;
    const auto& right = sequences[static_cast<std::size_t>(b)].blocks;
    return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end());
  });
  return order;
}

AttentionPlan plan_attention(std::span<const SequenceRows> sequences, const AttentionShape& shape,
                             const AttentionPlanOptions& options) {
  check(shape.n_kv_heads > 0 && shape.n_heads % shape.n_kv_heads == 0,
        "plan_attention: query heads are not a multiple of KV heads");
  check(shape.block_len >= 16 && kAttentionChunk % shape.block_len == 0,
        "plan_attention: the block length must divide 256 and be at least 16");
  check(options.costs.row_tile >= 1 && options.costs.n_workers >= 1, "plan_attention: costs without a row tile or workers");
  return Planner(sequences, shape, options).make();
}

LayerGroupSections append_plan(StepInput& step, const AttentionPlan& plan) {
  LayerGroupSections sections;
  sections.rows = step.append(std::span<const TokenRow>(plan.rows));
  sections.items = step.append(std::span<const AttentionItem>(plan.items));
  sections.block_lists = step.append(std::span<const std::int32_t>(plan.block_lists));
  sections.merge_offsets = step.append(std::span<const std::int32_t>(plan.merge_offsets));
  sections.merge_slots = step.append(std::span<const std::int32_t>(plan.merge_slots));
  sections.n_partials = plan.n_partials;
  return sections;
}

}  // namespace baton
