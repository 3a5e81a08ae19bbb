/// RunningBlocks: a block is known while a sequence that begins with it is running.
#include "engine/running_blocks.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(RunningBlocks, knows_a_block_until_the_last_sequence_that_has_it_leaves) {
  const std::vector<BlockHash> first{{1, 1}, {2, 2}};
  std::vector<BlockHash> second{{1, 1}, {3, 3}};
  RunningBlocks blocks(2);
  EXPECT_FALSE(blocks.contains({1, 1}));
  blocks.update(SlotId{0}, first);
  blocks.update(SlotId{1}, second);
  second.push_back({4, 4});
  blocks.update(SlotId{1}, second);
  EXPECT_TRUE(blocks.contains({4, 4}));
  EXPECT_EQ(blocks.n_counted(SlotId{1}), 3u);
  blocks.remove(SlotId{1}, second);
  EXPECT_TRUE(blocks.contains({1, 1}));
  EXPECT_TRUE(blocks.contains({2, 2}));
  EXPECT_FALSE(blocks.contains({3, 3}));
  EXPECT_FALSE(blocks.contains({4, 4}));
  blocks.remove(SlotId{0}, first);
  EXPECT_TRUE(blocks.is_empty());
}

TEST(RunningBlocksDeathTest, aborts_where_hashes_were_lost) {
  const std::vector<BlockHash> hashes{{1, 1}, {2, 2}};
  RunningBlocks blocks(1);
  blocks.update(SlotId{0}, hashes);
  EXPECT_DEATH(blocks.remove(SlotId{0}, std::span(hashes).first(1)), "lost hashes");
}

}  // namespace
}  // namespace baton
