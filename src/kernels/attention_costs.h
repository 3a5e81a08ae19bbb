/// The inputs of the attention planner: the shape of a layer group, and the costs of attention on a device.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace baton {

/// Positions of a chunk. In batch-invariant mode runs are cut only at absolute multiples of this. In every mode an
/// executor computes a row's partial state for each chunk separately and merges the chunks from left to right.
inline constexpr std::int32_t kAttentionChunk = 256;

/// The most kinds of tiles that a device has, a kernel for each.
inline constexpr std::size_t kMostTileKinds = 2;

struct AttentionShape {
  std::int32_t n_heads = 0;  ///< query heads of the rank
  std::int32_t n_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t kv_element_bytes = 2;
  std::int32_t window = 0;  ///< a row sees its last `window` positions; 0: all
  std::int32_t block_len = 16;
  bool is_chunked = false;      ///< of the window a row sees the positions from the last multiple of `window` on
  std::int32_t latent_dim = 0;  ///< over 0: values are the beginnings of keys (KvShape::latent_dim)

  std::int32_t v_dim() const { return latent_dim > 0 ? latent_dim : head_dim; }

  /// The first position that a row at `position` sees.
  std::int32_t first_seen(std::int32_t position) const {
    if (window == 0) return 0;
    return is_chunked ? position / window * window : std::max(0, position + 1 - window);
  }

  std::int64_t token_bytes() const { return (latent_dim > 0 ? 1LL : 2LL) * n_kv_heads * head_dim * kv_element_bytes; }
};

/// What tiles of one kind cost. A kernel processes them.
struct TileCosts {
  /// Rate of attention's matmuls with many query rows (token rows x query heads of a KV head).
  double flops_per_us = 300e3;
  /// How many times as long the matmuls of more than 16 padded rows take over 8-bit keys and values, which are converted
  /// for them. With up to 16 rows, 8 bits take no longer than 16 bits.
  double conversion_ratio = 1;
  std::int32_t n_workers = 2;  ///< threads or blocks that share the items
  /// Token rows that one read of a run serves; a node with more rows is read ceil(rows / row_tile) times. If
  /// row_tile_queries is not 0, it says instead how many query rows one read serves.
  std::int32_t row_tile = 32;
  std::int32_t row_tile_queries = 0;
};

/// Tiles that serve more query rows than those of the kind before. Their kernel takes some shapes only: all rows of a step
/// or, beside the kernel before, its shared runs.
struct LargerTiles {
  TileCosts costs;                          ///< row_tile_queries 0: the device has no such tiles
  std::array<std::int32_t, 2> head_dims{};  ///< the head sizes that the kernel takes
  std::int32_t max_element_bytes = 0;       ///< of its keys and values
  /// Of keys and values where both kernels may run at the same time. The rest is about that: how many times as long the
  /// kernel before takes for runs that fill larger tiles, how much later this one ends than its work alone says, and the
  /// least part of the time to save.
  std::int32_t max_joint_element_bytes = 0;
  double smaller_ratio = 1;
  double launch_us = 0;
  double least_gain = 0;

  bool serve(const AttentionShape& shape) const {
    return costs.row_tile_queries > 0 && shape.kv_element_bytes <= max_element_bytes &&
           std::ranges::find(head_dims, shape.head_dim) != head_dims.end();
  }
  bool may_join(const AttentionShape& shape) const { return serve(shape) && shape.kv_element_bytes <= max_joint_element_bytes; }
};

/// Tiles of storages whose values are the beginnings of keys (AttentionShape::latent_dim), where another kernel reads these.
struct LatentTiles {
  TileCosts costs;  ///< row_tile_queries 0: the kernel of kind 0 does
  double few_queries = 0;
  std::int32_t query_granule = 1;
  double item_us = 0;
};

/// What attention costs on a device, in microseconds and bytes, for all KV heads of the rank. The defaults are those
/// of a CPU; a backend returns its own (BackendTuning::attention_costs). As TileCosts it has the costs of tiles of kind 0.
struct AttentionCosts : TileCosts {
  double memory_bytes_per_us = 40e3;    ///< reading keys and values from memory
  double cache_bytes_per_us = 150e3;    ///< re-reading them while they stay in the cache
  std::int64_t cache_bytes = 22 << 20;  ///< re-reads hit it while their keys and values take less than 0.7 of this
  /// Query rows are padded to query_granule times a power of two (up to 128; query_granule 1: no padding). With r padded
  /// rows a key takes as long as r + few_queries rows at the rate of the tiles.
  double few_queries = 0;
  std::int32_t query_granule = 1;
  double partial_bytes_per_us = 20e3;  ///< writing and merging partial states
  double item_us = 0.7;                ///< fixed cost of an item and KV head, of one worker's time
  double merge_us = 0;                 ///< extra time of a step in which any row is merged
  double relay_us = 0;                 ///< least saving for which a node is relayed, even if the step merges anyway
  std::int32_t min_piece = 256;        ///< positions; a run is not cut into shorter pieces than this
  /// The same for runs of at least long_run positions: where runs are short, merging more pieces costs more than it saves.
  std::int32_t min_piece_of_long = 256;
  std::int32_t long_run = std::numeric_limits<std::int32_t>::max();
  /// true: a worker processes all items of one KV head before the next head, so re-reads of a run are close together
  /// and the cache must hold only the heads in progress. false: all heads and items are read at the same time.
  bool head_by_head = true;
  std::array<LargerTiles, kMostTileKinds - 1> larger_tiles;  ///< the kinds from 1 on
  LatentTiles latent_tiles;

  /// The costs of a shape: those of latent tiles, of which there is one kind, if these serve it.
  AttentionCosts of_shape(const AttentionShape& shape) const {
    AttentionCosts costs = *this;
    if (shape.latent_dim == 0 || latent_tiles.costs.row_tile_queries == 0) return costs;
    static_cast<TileCosts&>(costs) = latent_tiles.costs;
    costs.few_queries = latent_tiles.few_queries;
    costs.query_granule = latent_tiles.query_granule;
    costs.item_us = latent_tiles.item_us;
    costs.larger_tiles = {};
    return costs;
  }
  /// The same for a device whose tiles are all of this kind.
  AttentionCosts of_kind(std::size_t kind) const {
    AttentionCosts costs = *this;
    if (kind > 0) static_cast<TileCosts&>(costs) = larger_tiles.at(kind - 1).costs;
    return costs;
  }
};

/// Token rows that one read of a run serves.
inline std::int32_t rows_a_read(const TileCosts& costs, const AttentionShape& shape) {
  if (costs.row_tile_queries == 0) return costs.row_tile;
  return std::max(1, costs.row_tile_queries / (shape.n_heads / shape.n_kv_heads));
}

}  // namespace baton
