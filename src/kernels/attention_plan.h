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

/// What attention costs on a device, in microseconds and bytes, with all KV heads of the rank. The defaults are a CPU's; a
/// backend gives its own (BackendInfo::attention_costs).
struct AttentionCosts {
  double memory_bytes_per_us = 40e3;    ///< reading keys and values from memory
  double cache_bytes_per_us = 150e3;    ///< re-reading them while they stay in the cache
  std::int64_t cache_bytes = 22 << 20;  ///< re-reads come from the cache while what is read again has under 0.7 of this
  /// Rate of the products with many query rows (token rows x query heads of a KV head). With r rows, padded to query_granule
  /// times a power of two (no further than 128; 1: no padding), a key takes as long as r + few_queries rows at this rate.
  double flops_per_us = 300e3;
  double few_queries = 0;
  std::int32_t query_granule = 1;
  double partial_bytes_per_us = 20e3;  ///< writing and merging partial states
  double item_us = 0.7;                ///< fixed cost of an item and KV head, of one worker's time
  double merge_us = 0;                 ///< what a step that merges anything takes longer at its end
  double relay_us = 0;                 ///< what relaying has to save at least, also where the step merges anyway
  std::int32_t n_workers = 2;          ///< threads or blocks that share the items
  /// Token rows that one read of a run serves (a node with more is read ceil(rows / row_tile) times); or, if row_tile_queries
  /// is not 0, the query rows that it serves.
  std::int32_t row_tile = 32;
  std::int32_t row_tile_queries = 0;
  std::int32_t min_piece = 256;  ///< positions; a run is not cut into shorter pieces than this
  /// A worker takes all items of one KV head before those of the next: re-reads come one after the other, and the cache has to
  /// hold the heads that are worked at. Otherwise all heads and items are read at the same time.
  bool head_by_head = true;
  bool deals_pairs = false;  ///< the plan says which worker takes which (item, KV head) pairs
};

struct AttentionShape {
  std::int32_t n_heads = 0;  ///< query heads of the rank
  std::int32_t n_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t kv_element_bytes = 2;
  std::int32_t window = 0;  ///< a row sees its last `window` positions; 0: all
  std::int32_t block_len = 16;

  std::int64_t token_bytes() const { return 2LL * n_kv_heads * head_dim * kv_element_bytes; }
};

/// Token rows that one read of a run serves.
inline std::int32_t rows_a_read(const AttentionCosts& costs, const AttentionShape& shape) {
  if (costs.row_tile_queries == 0) return costs.row_tile;
  return std::max(1, costs.row_tile_queries / (shape.n_heads / shape.n_kv_heads));
}

struct AttentionPlanOptions {
  bool relay = true;  ///< false: every sequence reads all of its context by itself (`--attention paged`)
  bool batch_invariant =
      false;  ///< bit-identical for any batch: cuts at multiples of kInvariantChunk, nodes in whole chunks only
  AttentionCosts costs;
  std::int32_t max_items = 1 << 16;  ///< over these the plan coarsens (fewer cuts, then leaves)
  std::int32_t max_partials = 1 << 20;
};

/// Cuts in batch-invariant mode are at absolute multiples of this many positions, and every executor builds a row's state of
/// each such chunk from nothing and folds chunks left to right, in every mode.
inline constexpr std::int32_t kAttentionChunk = 256;

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
  std::vector<std::int32_t> merge_slots;
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

/// Appends a plan's arrays to a step, as a layer group of it; where keys are stored (kv_slots) is the caller's to add.
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
