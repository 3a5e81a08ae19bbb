/// The attention plan of a step: which rows attend to which runs of keys together.
///
/// Pure host code that needs no device. The planner makes one plan for each step and layer group from the block tables
/// of the running sequences. Sequences whose tables begin with the same blocks share a node of a prefix tree; no
/// registration is needed. In relay mode a node that pays becomes one item for all its rows (RelayAttention,
/// arXiv:2402.14808, for any tree). The keys of other nodes are read by each sequence as part of its own context
/// (PagedAttention). Long runs are cut into pieces (Flash-Decoding), and partial states are merged in the order of
/// positions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "kernels/attention_costs.h"
#include "kernels/batch.h"

namespace baton {

/// One running sequence's part of a step: the last `n_rows` of its `kv_len` tokens are rows of the batch. The keys of
/// all earlier tokens were stored by earlier steps: no sequence shares a block into which another sequence of this
/// step still writes.
struct SequenceRows {
  SlotId slot;
  std::span<const BlockId> blocks;  ///< block table, at least ceil(kv_len / block_len) entries
  std::int32_t kv_len = 0;
  std::int32_t n_rows = 0;  ///< 1 in decode; more in prefill, extends and verification
  /// The sequence gave back the blocks before this one, outside its window: none of its rows sees them, and no item may
  /// read them for it. Their numbers still order the tables. Two tables with the same block at an index have the same
  /// block at every index before it where both still hold one.
  std::int32_t first_block = 0;
};

struct AttentionPlanOptions {
  bool relay = true;  ///< false: each sequence reads its whole context by itself (`--attention paged`)
  /// Bit-identical results for any batch: cuts only at multiples of kAttentionChunk, pieces of one chunk
  /// after a row's first piece, nodes of whole chunks only.
  bool batch_invariant = false;
  AttentionCosts costs;
  bool deals_pairs = false;          ///< BackendCapabilities: the plan assigns the (item, KV head) pairs to workers
  std::int32_t max_items = 1 << 16;  ///< with more, the planner cuts less, and at last shares nothing
  std::int32_t max_partials = 1 << 20;
};

/// A shared run that the plan reads once for several sequences.
struct RelayNode {
  std::int32_t kv_begin = 0;
  std::int32_t kv_end = 0;
  std::int32_t n_sequences = 0;
  std::int32_t depth = 0;  ///< number of relayed nodes above it
};

/// Whether a run of keys that several sequences share is relayed, and if not, why.
enum class NodeChoice : std::int32_t {
  relayed,         ///< read once
  costs_more,      ///< partial states and items would cost more than the reads saved
  merging_costs,   ///< it pays alone, but all such nodes together save less than merging costs the step
  outside_window,  ///< no row sees it
  no_room,         ///< the buffers for items or partial states are too small for shared nodes
};

/// A node of the prefix tree, and why it was relayed or not. Times are estimates for one layer.
struct NodeReport {
  std::int32_t first_sequence = 0;
  std::int32_t n_sequences = 0;
  std::int32_t kv_begin = 0;
  std::int32_t kv_end = 0;
  std::int32_t depth = 0;  ///< number of nodes above it
  NodeChoice choice = NodeChoice::costs_more;
  /// Reading and matmuls. A relayed node also saves at the keys before it, which its rows read together: this counts, so
  /// the sum over the relayed nodes is what the plan saves. Of another node: what relaying it would save at its own keys.
  double saved_us = 0;
  double cost_us = 0;  ///< partial states and items
};

struct AttentionPlanStats {
  /// Per layer: bytes that a paged plan would request (each sequence reads its whole context, once for each row tile).
  std::int64_t kv_bytes_plain = 0;
  std::int64_t kv_bytes_requested = 0;  ///< per layer: bytes that this plan requests
  /// Per layer: bytes of shared keys that each sequence still reads by itself (sharing did not pay, or no whole
  /// chunk).
  std::int64_t shareable_bytes_lost = 0;
  std::vector<RelayNode> nodes;  ///< parents first
  std::vector<NodeReport> tree;  ///< every node, parents first; empty without relay
  double busy_us = 0;            ///< estimate: the total work, divided evenly among the workers
  double makespan_us = 0;        ///< estimate: when the last worker ends, if workers take items in the order given
};

struct AttentionPlan {
  std::vector<TokenRow> rows;
  /// In the order in which to start them: shared runs, then contexts, each group with long ones first. Executors
  /// process the first n_item_major item by item, each with all KV heads. They process the others head by head, so
  /// that sequences that read the same blocks by themselves read them at about the same time.
  std::vector<AttentionItem> items;
  std::int32_t n_item_major = 0;
  /// With AttentionPlanOptions::deals_pairs: (item, KV head) pairs as item * n_kv_heads + kv_head. Worker w processes
  /// those at [worker_offsets[w], worker_offsets[w + 1]), in this order. The planner assigns them by estimated time,
  /// so that all workers of a kernel end together.
  std::vector<std::int32_t> pairs;
  std::vector<std::int32_t> worker_offsets;  ///< [workers + 1]
  std::vector<std::int32_t> block_lists;
  std::vector<std::int32_t> merge_offsets;  ///< [n_rows + 1]
  std::vector<std::int32_t> merge_inputs;
  std::int32_t n_partials = 0;
  /// The kind of the items' tiles: the largest that the sequences of most rows fill.
  std::int32_t tile_kind = 0;
  /// The first n_larger_items items, shared runs of many rows, may have tiles of the next kind. Their pairs belong to the
  /// first n_larger_workers workers.
  std::int32_t n_larger_items = 0;
  std::int32_t n_larger_workers = 0;
  std::int32_t row_tile = 1;  ///< token rows that one read serves
  AttentionPlanStats stats;
};

/// Makes plans, and reuses its memory from plan to plan.
///
/// It finds the tree that the block tables form and decides from the leaves up which nodes are read once for all (see
/// NodeReport). It cuts runs into as few pieces as are needed for all workers to end within a few percent of each
/// other, if each free worker takes the next (item, KV head) pair. It links partial states in the order of positions.
/// Cost: O(n log n) in sequences, plus the sizes of the block tables and of the plan. Thread: one at a time.
class AttentionPlanner {
 public:
  AttentionPlanner();
  ~AttentionPlanner();
  AttentionPlanner(AttentionPlanner&&) noexcept;
  AttentionPlanner& operator=(AttentionPlanner&&) noexcept;

  /// depth_first_order, in reused memory: valid until the next call.
  std::span<const std::int32_t> order(std::span<const SequenceRows> sequences);
  /// Plans one layer group. `sequences` must stand in depth_first_order; rows are laid out sequence after sequence.
  /// Valid until the next call.
  const AttentionPlan& plan(std::span<const SequenceRows> sequences, const AttentionShape& shape,
                            const AttentionPlanOptions& options);

 private:
  friend AttentionPlan plan_attention(std::span<const SequenceRows>, const AttentionShape&, const AttentionPlanOptions&);
  struct Work;
  std::unique_ptr<Work> work_;
};

/// The order of sequences in the batch in which the sequences of every node are neighbours: depth first over the tree
/// that the block tables form. Returns indices into `sequences`; equal tables keep their order.
std::vector<std::int32_t> depth_first_order(std::span<const SequenceRows> sequences);

/// The same as AttentionPlanner::plan, with newly allocated memory.
AttentionPlan plan_attention(std::span<const SequenceRows> sequences, const AttentionShape& shape,
                             const AttentionPlanOptions& options);

/// Appends a plan's arrays to a step as those of a layer group. The caller adds where keys are stored (kv_indices).
void append_plan(StepInput& step, const AttentionPlan& plan, int group = 0);

/// A phrase about a node: "relayed", or "not relayed, " and why.
std::string_view to_string(NodeChoice choice);

/// The plan as text: rows, bytes, every node of the tree with what it saves and costs, items (`--explain`).
std::string to_string(const AttentionPlan& plan);

/// The work of a step. Each time is that of the whole device, in microseconds.
struct SharedWork {
  double larger_us = 0;  ///< of the kernel with larger tiles, for the runs that it may take
  double other_us = 0;   ///< of the other kernel, for all other runs
};

/// How many of their workers larger tiles get so that both kernels end together; the other kernel gets the part of the
/// device that is left. 0: less than least_gain of the time of one kernel for all runs would be saved.
std::int32_t larger_share(const SharedWork& work, const LargerTiles& tiles);

}  // namespace baton
