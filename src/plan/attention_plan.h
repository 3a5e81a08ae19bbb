/// The attention plan of a step: which rows attend to which runs of keys together.
///
/// Pure host code, no device. A plan is made per step and layer group from the block tables of the running sequences: sequences
/// whose tables begin with the same blocks share a node of a prefix tree, found here without any registration. In relay mode a
/// node that pays is one item for all its rows (RelayAttention, arXiv:2402.14808, for any tree); what does not pay is folded
/// into the leaves (PagedAttention); long runs are cut (Flash-Decoding); partial states are merged in position order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "kernels/attention_costs.h"
#include "kernels/batch.h"

namespace baton {

/// One running sequence's part of a step: its last `n_rows` of `kv_len` tokens are rows of the batch (kv_len counts them). The
/// keys of all tokens before are older than the step: no sequence shares a block that another of the step still fills.
struct SequenceRows {
  SlotId slot;
  std::span<const BlockId> blocks;  ///< block table, at least ceil(kv_len / block_len) entries
  std::int32_t kv_len = 0;
  std::int32_t n_rows = 0;  ///< 1 in decode; more in prefill, extends and verification
};

struct AttentionPlanOptions {
  bool relay = true;  ///< false: every sequence reads all of its context by itself (`--attention paged`)
  bool batch_invariant =
      false;  ///< bit-identical for any batch: cuts at multiples of kInvariantChunk, nodes in whole chunks only
  AttentionCosts costs;
  std::int32_t max_items = 1 << 16;  ///< over these the plan coarsens (fewer cuts, then leaves)
  std::int32_t max_partials = 1 << 20;
};

/// A shared run that the plan reads once for several sequences.
struct RelayNode {
  std::int32_t kv_begin = 0;
  std::int32_t kv_end = 0;
  std::int32_t n_sequences = 0;
  std::int32_t depth = 0;  ///< relayed nodes above it
};

/// What became of a run of keys that several sequences share.
enum class NodeChoice : std::int32_t {
  relayed,         ///< read once
  costs_more,      ///< partial states and items would cost more than the reads
  merging_costs,   ///< it pays, but all such nodes together save less than the merging that they bring to the step
  outside_window,  ///< no row sees it
  no_room,         ///< the buffers for items or partial states hold nothing but leaves
};

/// A node of the prefix tree and why it was relayed or not. Times are estimates for one layer.
struct NodeReport {
  std::int32_t first_sequence = 0;
  std::int32_t n_sequences = 0;
  std::int32_t kv_begin = 0;
  std::int32_t kv_end = 0;
  std::int32_t depth = 0;  ///< nodes above it
  NodeChoice choice = NodeChoice::costs_more;
  double saved_us = 0;  ///< of reading and products
  double cost_us = 0;   ///< of partial states and items
};

struct AttentionPlanStats {
  std::int64_t kv_bytes_plain =
      0;  ///< per layer: what leaves alone would request (each sequence its whole context, per row tile)
  std::int64_t kv_bytes_requested = 0;  ///< per layer: what this plan requests
  std::int64_t shareable_bytes_lost =
      0;  ///< per layer: shared by several sequences and still read by each (did not pay, or not a whole chunk)
  std::vector<RelayNode> nodes;  ///< parents first
  std::vector<NodeReport> tree;  ///< every node, parents first; empty without relay
  double busy_us = 0;            ///< estimate: all workers' time, shared evenly among them
  double makespan_us = 0;        ///< estimate: the time of the worker that ends last, if they take items in the order given
};

struct AttentionPlan {
  std::vector<TokenRow> rows;
  /// In the order to start them: shared runs, then contexts, long ones first in each. The first n_item_major are started with
  /// all KV heads item by item; the rest, whose lengths matter less, head by head, so that sequences which read the same blocks
  /// by themselves read them at the same time.
  std::vector<AttentionItem> items;
  std::int32_t n_item_major = 0;
  /// With AttentionCosts::deals_pairs: item * n_kv_heads + kv_head, those of worker w at [worker_offsets[w], worker_offsets[w +
  /// 1]) in the order to take them. Dealt by estimated times so that all workers end together.
  std::vector<std::int32_t> pairs;
  std::vector<std::int32_t> worker_offsets;  ///< [n_workers + 1]
  std::vector<std::int32_t> block_lists;
  std::vector<std::int32_t> merge_offsets;  ///< [n_rows + 1]
  std::vector<std::int32_t> merge_inputs;
  std::int32_t n_partials = 0;
  AttentionPlanStats stats;
};

/// Makes plans with the same memory again and again.
///
/// Finds the tree that the block tables form, decides from the leaves up which nodes are read once for all (see NodeReport),
/// cuts runs so that workers who take (item, KV head) pairs in that order, whoever is free the next one, end within
/// a few percent of each other with as few pieces as that takes, and links partial states in position order.
/// O(n log n) in sequences, plus the sizes of block tables and of the plan. Thread: one at a time.
class AttentionPlanner {
 public:
  AttentionPlanner();
  ~AttentionPlanner();
  AttentionPlanner(AttentionPlanner&&) noexcept;
  AttentionPlanner& operator=(AttentionPlanner&&) noexcept;

  /// depth_first_order into memory that is kept: valid until the next call.
  std::span<const std::int32_t> order(std::span<const SequenceRows> sequences);
  /// Plans one layer group. `sequences` must stand in depth_first_order; rows are laid out sequence after sequence. Valid until
  /// the next call.
  const AttentionPlan& plan(std::span<const SequenceRows> sequences, const AttentionShape& shape,
                            const AttentionPlanOptions& options);

 private:
  friend AttentionPlan plan_attention(std::span<const SequenceRows>, const AttentionShape&, const AttentionPlanOptions&);
  struct Work;
  std::unique_ptr<Work> work_;
};

/// The order in which sequences must stand in the batch so that the sharers of any node are neighbours: depth first over the
/// tree that their block tables form. Returns indices into `sequences`; equal tables keep their order.
std::vector<std::int32_t> depth_first_order(std::span<const SequenceRows> sequences);

/// AttentionPlanner::plan with memory of its own.
AttentionPlan plan_attention(std::span<const SequenceRows> sequences, const AttentionShape& shape,
                             const AttentionPlanOptions& options);

/// Appends a plan's arrays to a step, as a layer group of it; where keys are stored (kv_indices) is the caller's to add.
LayerGroupSections append_plan(StepInput& step, const AttentionPlan& plan);

/// Says what is wrong with a plan, if anything: each row must see each position of its [kv_lo, kv_hi) in exactly one item that
/// reads the block its table names, partial states must be written once and merged once, in ascending position order, flags
/// must be true.
std::optional<std::string> find_plan_fault(const AttentionPlan& plan, std::span<const SequenceRows> sequences,
                                           const AttentionShape& shape);

/// For a sentence about a node: "relayed", or "not relayed, " and why.
std::string_view to_string(NodeChoice choice);

/// The plan for a reader: rows, bytes, every node of the tree with what it saves and costs, items (`--explain`).
std::string to_string(const AttentionPlan& plan);

}  // namespace baton
