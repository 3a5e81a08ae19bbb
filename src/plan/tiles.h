/// The tiles of a plan: which rows read which run of keys together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/attention_plan.h"
#include "plan/nodes.h"
#include "plan/pieces.h"

namespace baton {

/// Kinds of tiles in a plan. Items of a kind come before those of the kinds after it.
enum TileKindIndex : std::int8_t {
  kLargerTiles,  ///< shared runs of many rows, while another kernel reads the rest
  kMainTiles,    ///< all else
  kTileKinds,
  kOwnTiles = -1,  ///< of a node: each of its sequences reads it as part of its own context
};

/// The tiles of a plan, and what its items read.
struct PlanTiles {
  std::vector<PlanTile> tiles;  ///< shared runs before the tiles below them, so a row's tiles ascend
  std::array<std::vector<TileBatch>, kTileKinds> batches;
  std::array<std::size_t, kTileKinds> n_shared{};  ///< so many batches of a kind come first: they are of shared runs
  std::vector<std::int32_t> block_lists;
  std::vector<RelayNode> nodes;  ///< parents first
};

/// Makes tiles. Reuses its memory from call to call.
class TileMaker {
 public:
  /// Makes the tiles of every node that is read as one and of every sequence's own context. `kinds`: TileKindIndex of each
  /// node. `row_tiles`: token rows of a tile of each kind.
  void make(const LaidOutRows& rows, std::span<const PrefixNode> nodes, std::span<const std::int8_t> kinds,
            const std::array<std::int32_t, kTileKinds>& row_tiles, std::int32_t block_len, PlanTiles& made);

 private:
  void add_tiles(const LaidOutRows& rows, std::int32_t first_sequence, std::int32_t n_sequences, std::int32_t kv_begin,
                 std::int32_t kv_end, std::int32_t row_tile, PlanTiles& made) const;
  void add_tile_of_row(const LaidOutRows& rows, std::int32_t index, std::int32_t kv_begin, PlanTiles& made) const;
  std::int32_t add_blocks(std::span<const BlockId> table, std::int32_t list_begin, std::int32_t list_end,
                          PlanTiles& made) const;
  void find_lone_tiles(std::size_t n_rows, PlanTiles& made);

  int block_shift_ = 0;                        ///< block_len is a power of two, because it divides kAttentionChunk
  std::vector<std::int32_t> n_relayed_above_;  ///< of each node
  std::vector<std::int32_t> kv_begin_of_;      ///< where each sequence's own context begins
  std::vector<std::int32_t> tiles_of_row_;
};

}  // namespace baton
