/// The decision about each node, from the leaves up.
#include "plan/nodes.h"

#include <cmath>
#include <limits>

#include "plan/pieces.h"

namespace baton {
namespace {

/// Number of leading blocks that every row of a sequence sees completely, so that sharing them needs no causal mask.
std::int32_t n_shareable_blocks(const SequenceRows& sequence, std::int32_t block_len) {
  return (sequence.kv_len - sequence.n_rows + 1) / block_len;
}

/// Number of positions of a node that some row sees.
std::int32_t n_keys_seen(const PrefixNode& node, const LaidOutRows& rows, const AttentionShape& shape) {
  std::int32_t begin = node.kv_begin;
  if (shape.window > 0) {
    std::int32_t lowest = std::numeric_limits<std::int32_t>::max();
    for (std::int32_t i = node.first_sequence; i < node.first_sequence + node.n_sequences; ++i)
      lowest = std::min(lowest, rows.rows[at(rows.first_row[at(i)])].kv_lo);
    begin = std::max(begin, lowest);
  }
  return std::max(0, node.kv_end - begin);
}

/// Cost of the partial states and items that relaying a node adds.
double cost_of(const PrefixNode& node, std::int32_t merged_rows, double n_reads, std::int32_t n_keys, const LaidOutRows& rows,
               const AttentionShape& shape, const AttentionPlanOptions& options, const AttentionCostModel& model) {
  const AttentionCosts& costs = options.costs;
  const double n_rows = rows.n_rows_of(node);
  double pieces_of_leaf = 1;  // rows that would be written directly now write a partial state, too
  const double n_chunks = std::ceil(1.0 * n_keys / kAttentionChunk);
  // The largest number of pieces that it may be cut into to occupy all workers. In batch-invariant mode only a row's first
  // piece may have several chunks.
  const double n_pairs = n_reads * shape.n_kv_heads;
  const double most_pieces = std::max(1.0, 1.0 * n_keys / least_piece(n_keys, options));
  double pieces = std::clamp(std::floor(costs.n_workers / n_pairs), 1.0, most_pieces);
  if (options.batch_invariant) {
    pieces = node.parent < 0 ? 1 + n_chunks - std::ceil(n_chunks / pieces) : n_chunks;
    double own_len = 0;
    for (std::int32_t i = node.first_sequence; i < node.first_sequence + node.n_sequences; ++i)
      own_len += rows.sequences[at(i)].kv_len - node.kv_end;
    pieces_of_leaf = 1 + own_len / node.n_sequences / kAttentionChunk;
  }
  return model.partials_us(n_rows * pieces + (n_rows - merged_rows) * pieces_of_leaf) +
         costs.item_us * n_reads * pieces * shape.n_kv_heads / costs.n_workers;
}

/// Whether contexts would be cut, and therefore merged, even without sharing.
bool leaves_are_cut(const LaidOutRows& rows, const AttentionShape& shape, const AttentionPlanOptions& options,
                    const AttentionCostModel& model) {
  double total_us = 0;
  double longest_us = 0;
  std::int32_t n_rows = 0;
  double key_us = 0;
  double n_tiles = 0;
  for (const SequenceRows& sequence : rows.sequences) {
    if (sequence.n_rows != n_rows) {
      n_rows = sequence.n_rows;
      key_us = model.worker_key_us(std::min(n_rows, model.row_tile()));
      n_tiles = std::ceil(1.0 * n_rows / model.row_tile());
    }
    const double us = sequence.kv_len * key_us;
    total_us += us * n_tiles;
    longest_us = std::max(longest_us, us);
  }
  return longest_us > 1.1 * total_us * shape.n_kv_heads / options.costs.n_workers;
}

/// Positions at the front that two neighbours share: where both hold a block, they hold the same. `likely`: a guess.
std::int32_t n_common_positions(const SequenceRows& a, const SequenceRows& b, std::int32_t block_len, bool batch_invariant,
                                std::int32_t likely) {
  const std::int32_t first = std::max(a.first_block, b.first_block);
  const std::int32_t limit = std::min(n_shareable_blocks(a, block_len), n_shareable_blocks(b, block_len));
  if (first >= limit) return 0;
  std::int32_t n =
      first + count_common_blocks(a.blocks.data() + first, b.blocks.data() + first, limit - first, likely / block_len - first);
  if (batch_invariant) n -= n % (kAttentionChunk / block_len);
  return n > first ? n * block_len : 0;
}

}  // namespace

void NodeChooser::build_tree(const LaidOutRows& rows, const AttentionShape& shape, bool batch_invariant) {
  const std::span<const SequenceRows> sequences = rows.sequences;
  common_len_.resize(sequences.empty() ? 0 : sequences.size() - 1);
  std::int32_t len = 0;
  for (std::size_t i = 0; i < common_len_.size(); ++i)
    common_len_[i] = len = n_common_positions(sequences[i], sequences[i + 1], shape.block_len, batch_invariant, len);
  builder_.build(common_len_, nodes_);
}

/// Reads of a node's run if each of its sequences reads it by itself.
RunReads NodeChooser::leaf_reads(const PrefixNode& node) const {
  RunReads reads = leaf_reads_before_[at(node.first_sequence + node.n_sequences)];
  reads -= leaf_reads_before_[at(node.first_sequence)];
  return reads;
}

/// Relays a node if that saves more than it costs, given the choices already made for the nodes below it. Returns the
/// microseconds that relaying gains at its keys: what the relayed nodes below save here, because each reads these keys
/// once for all its rows, and what the node itself saves and costs.
double NodeChooser::decide(std::size_t index, const LaidOutRows& rows, const AttentionShape& shape,
                           const AttentionPlanOptions& options, const AttentionCostModel& model, NodeReport& report) {
  const PrefixNode& node = nodes_[index];
  State& state = states_[index];
  const std::int32_t n_rows = rows.n_rows_of(node);
  const RunReads own = model.reads_of(n_rows);
  const RunReads leaves = leaf_reads(node);
  const std::int32_t n_keys = n_keys_seen(node, rows, shape);
  report = {node.first_sequence, node.n_sequences, node.kv_begin, node.kv_end, node.depth, NodeChoice::outside_window, 0, 0};
  double gain_us = 0;
  if (n_keys > 0) {
    RunReads below = leaves;
    below += state.more_reads;
    const double below_us = model.run_us(below, n_keys, false);
    if (state.merged_rows > 0) gain_us = state.saved_below_us = model.run_us(leaves, n_keys, false) - below_us;
    report.saved_us = below_us - model.run_us(own, n_keys, true);
    report.cost_us = cost_of(node, state.merged_rows, own.n_reads, n_keys, rows, shape, options, model);
    report.choice = report.saved_us > report.cost_us ? NodeChoice::relayed : NodeChoice::costs_more;
  }
  if (report.choice == NodeChoice::relayed) {
    state.more_reads = own;
    state.more_reads -= leaves;
    state.merged_rows = n_rows;
    gain_us += report.saved_us - report.cost_us;
  }
  if (node.parent >= 0) {
    State& parent = states_[at(node.parent)];
    parent.more_reads += state.more_reads;
    parent.merged_rows += state.merged_rows;
    // Where no read is saved, rows that are padded together may still save matmuls.
    state.weight = state.merged_rows > 0 ? std::max(0.0, -state.more_reads.n_reads) + 1e-9 : 0;
    parent.weight_below += state.weight;
  }
  return gain_us;
}

/// Adds to saved_us of each relayed node what it saves at the keys before it: of the time that is saved there, the part of
/// its saved reads.
void NodeChooser::credit(std::vector<NodeReport>& tree) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    State& state = states_[i];
    if (nodes_[i].parent >= 0 && state.weight > 0) {
      const State& parent = states_[at(nodes_[i].parent)];
      const bool is_parent_relayed = tree[at(nodes_[i].parent)].choice == NodeChoice::relayed;
      const double before_us = is_parent_relayed ? 0 : parent.earned_us;
      state.earned_us = (parent.saved_below_us + before_us) * state.weight / parent.weight_below;
    }
    if (tree[i].choice == NodeChoice::relayed) tree[i].saved_us += state.earned_us;
  }
}

void NodeChooser::choose(const LaidOutRows& rows, const AttentionShape& shape, const AttentionPlanOptions& options,
                         const AttentionCostModel& model, std::vector<NodeReport>& tree) {
  nodes_.clear();
  tree.clear();
  if (!options.relay) return;
  build_tree(rows, shape, options.batch_invariant);
  if (nodes_.empty()) return;
  leaf_reads_before_.resize(rows.sequences.size() + 1);
  leaf_reads_before_[0] = {};
  for (std::size_t i = 0; i < rows.sequences.size(); ++i) {
    leaf_reads_before_[i + 1] = leaf_reads_before_[i];
    leaf_reads_before_[i + 1] += model.reads_of(rows.sequences[i].n_rows);
  }
  states_.assign(nodes_.size(), {});
  tree.resize(nodes_.size());
  double gain_us = 0;
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    gain_us += decide(i, rows, shape, options, model, tree[i]);
  }
  credit(tree);
  const AttentionCosts& costs = options.costs;
  if (gain_us >= (leaves_are_cut(rows, shape, options, model) ? costs.relay_us : std::max(costs.merge_us, costs.relay_us)))
    return;
  for (NodeReport& report : tree)
    if (report.choice == NodeChoice::relayed) report.choice = NodeChoice::merging_costs;
}

std::int64_t NodeChooser::count_lost(const LaidOutRows& rows, const AttentionShape& shape, const AttentionCostModel& model,
                                     std::span<const NodeReport> tree) {
  std::int64_t lost = 0;
  for (State& state : states_) state = {};
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const PrefixNode& node = nodes_[i];
    const RunReads leaves = leaf_reads(node);
    const RunReads own = model.reads_of(rows.n_rows_of(node));
    RunReads read = leaves;
    read += states_[i].more_reads;
    if (tree[i].choice == NodeChoice::relayed) {
      read = own;
    } else {
      lost += std::llround(read.n_reads - own.n_reads) * n_keys_seen(node, rows, shape);
    }
    read -= leaves;
    if (node.parent >= 0) states_[at(node.parent)].more_reads += read;
  }
  return lost;
}

}  // namespace baton
