/// What attention looks like to a plan: the shape of a layer group, and what reading keys costs on a device.
#pragma once

#include <algorithm>
#include <cstdint>

namespace baton {

/// Cuts in batch-invariant mode are at absolute multiples of this many positions, and every executor builds a row's state of
/// each such chunk from nothing and folds chunks left to right, in every mode.
inline constexpr std::int32_t kAttentionChunk = 256;

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

}  // namespace baton
