/// TileMaker: which rows read which keys, for each kind of tiles.
#include "plan/tiles.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

/// Three sequences of 64, 64 and 40 positions that share 32 of them; the first has two rows, the others one.
struct Shared {
  std::vector<BlockId> first{BlockId{0}, BlockId{1}, BlockId{2}, BlockId{3}};
  std::vector<BlockId> second{BlockId{0}, BlockId{1}, BlockId{4}, BlockId{5}};
  std::vector<BlockId> third{BlockId{0}, BlockId{1}, BlockId{6}};
  std::vector<SequenceRows> sequences{{SlotId{0}, first, 64, 2}, {SlotId{1}, second, 64, 1}, {SlotId{2}, third, 40, 1}};
  std::vector<std::int32_t> first_row{0, 2, 3, 4};
  std::vector<std::int32_t> sequence_of_row{0, 0, 1, 2};
  std::vector<TokenRow> rows{{0, 62, 0, 63}, {0, 63, 0, 64}, {1, 63, 0, 64}, {2, 39, 0, 40}};
  std::vector<PrefixNode> nodes{{0, 3, 0, 32}};

  PlanTiles make(TileKindIndex kind) const {
    PlanTiles made;
    const auto kind_of_node = static_cast<std::int8_t>(kind);
    TileMaker().make({sequences, first_row, rows, sequence_of_row}, nodes, {&kind_of_node, 1}, {32, 3}, 16, made);
    return made;
  }
};

TEST(TileMaker, reads_each_context_by_itself_where_no_node_is_read_as_one) {
  const PlanTiles made = Shared().make(kOwnTiles);
  EXPECT_TRUE(made.nodes.empty());
  EXPECT_TRUE(made.batches[kLargerTiles].empty());
  EXPECT_EQ(made.n_shared[kMainTiles], 0u);
  ASSERT_EQ(made.tiles.size(), 3u);
  for (const PlanTile& tile : made.tiles) {
    EXPECT_EQ(tile.kv_begin, 0);
    EXPECT_TRUE(tile.is_direct());
  }
  EXPECT_EQ(made.tiles[0].n_rows, 2);
  EXPECT_EQ(made.block_lists, (std::vector<std::int32_t>{0, 1, 2, 3, 0, 1, 4, 5, 0, 1, 6}));
}

TEST(TileMaker, reads_a_node_in_the_tiles_of_its_kind_before_the_contexts_after_it) {
  for (const TileKindIndex kind : {kLargerTiles, kMainTiles}) {
    const PlanTiles made = Shared().make(kind);
    ASSERT_EQ(made.nodes.size(), 1u);
    EXPECT_EQ(made.nodes[0].n_sequences, 3);
    EXPECT_EQ(made.n_shared[kind], 1u);
    EXPECT_EQ(made.batches[kind][0].n_tiles, kind == kLargerTiles ? 1 : 2) << "four rows, in tiles of 32 or of 3";
    const std::size_t n_shared_tiles = kind == kLargerTiles ? 1 : 2;
    ASSERT_EQ(made.tiles.size(), n_shared_tiles + 3);
    for (std::size_t i = 0; i < made.tiles.size(); ++i) {
      const bool is_shared = i < n_shared_tiles;
      EXPECT_EQ(made.tiles[i].kv_begin, is_shared ? 0 : 32);
      EXPECT_EQ(made.tiles[i].is_first, is_shared);
      EXPECT_FALSE(made.tiles[i].is_direct()) << "its rows have partial states to merge";
    }
    EXPECT_EQ(made.batches[kMainTiles].size(), 3u + (kind == kMainTiles ? 1 : 0));
  }
}

}  // namespace
}  // namespace baton
