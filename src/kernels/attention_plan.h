/// The attention plan of a step: which rows attend to which runs of keys together.
///
/// Pure host code, no device. A plan is made per step and layer group from the block tables of the running sequences: sequences
/// whose tables begin with the same blocks share a node of a prefix tree, found here without any registration. In relay mode a
/// node that pays is one item for all its rows (RelayAttention, arXiv:2402.14808, for any tree); what does not pay is folded
/// into the leaves (PagedAttention); long runs are cut (Flash-Decoding); partial states are merged in position order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"
#include "kernels/batch.h"

namespace baton {

/// One running sequence's part of a step: its last `n_rows` of `kv_len` tokens are rows of the batch (kv_len counts them).
struct SequenceRows {
  SlotId slot;
  std::span<const BlockId> blocks;  ///< block table, at least ceil(kv_len / block_len) entries
  std::int32_t kv_len = 0;
  std::int32_t n_rows = 0;  ///< 1 in decode; more in prefill, extends and verification
};

/// What attention costs on a device, in microseconds and bytes, for one layer and one KV head set (all KV heads of the rank).
/// The defaults are a CPU's; a backend gives its own (BackendInfo::attention_costs).
struct AttentionCosts {
  double memory_bytes_per_us = 40e3;    ///< reading keys and values from memory
  double cache_bytes_per_us = 150e3;    ///< re-reading them while they stay in the cache
  std::int64_t cache_bytes = 22 << 20;  ///< a node's bytes per layer up to which a re-read comes from the cache
  double flops_per_us = 300e3;          ///< rate of the products when they bound
  double partial_bytes_per_us = 20e3;   ///< writing and merging partial states
  double item_us = 1.0;                 ///< fixed cost of an item
  std::int32_t n_workers = 2;           ///< threads or blocks that share the items
  std::int32_t row_tile =
      32;  ///< token rows one read of a run serves: a node with more rows is read ceil(rows / row_tile) times
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

struct AttentionPlanStats {
  std::int64_t kv_bytes_plain =
      0;  ///< per layer: what leaves alone would request (each sequence its whole context, per row tile)
  std::int64_t kv_bytes_requested = 0;  ///< per layer: what this plan requests
  std::int64_t shareable_bytes_lost =
      0;  ///< per layer: shared by several sequences and still read by each (did not pay, or not a whole chunk)
  std::vector<RelayNode> nodes;
};

struct AttentionPlan {
  std::vector<TokenRow> rows;
  std::vector<AttentionItem> items;
  std::vector<std::int32_t> block_lists;
  std::vector<std::int32_t> merge_offsets;  ///< [n_rows + 1]
  std::vector<std::int32_t> merge_slots;
  std::int32_t n_partials = 0;
  AttentionPlanStats stats;
};

/// The order in which sequences must stand in the batch so that the sharers of any node are neighbours: depth first over the
/// tree that their block tables form. Returns indices into `sequences`; equal tables keep their order.
std::vector<std::int32_t> depth_first_order(std::span<const SequenceRows> sequences);

/// Plans one layer group. `sequences` must stand in depth_first_order; rows are laid out sequence after sequence.
AttentionPlan plan_attention(std::span<const SequenceRows> sequences, const AttentionShape& shape,
                             const AttentionPlanOptions& options);

/// Appends a plan's arrays to a step, as a layer group of it; where keys are stored (kv_slots) is the caller's to add.
LayerGroupSections append_plan(StepInput& step, const AttentionPlan& plan);

/// Says what is wrong with a plan, if anything: each row must see each position of its [kv_lo, kv_hi) in exactly one item that
/// reads the block its table names, partial states must be written once and merged once, in ascending position order, flags
/// must be true.
std::optional<std::string> find_plan_fault(const AttentionPlan& plan, std::span<const SequenceRows> sequences,
                                           const AttentionShape& shape);

/// The plan for a reader: rows, nodes, items, bytes (`--explain`).
std::string to_string(const AttentionPlan& plan);

}  // namespace baton
