/// RunningBlocks: a block is known while a sequence that begins with it is running.
#include "engine/schedule/running_blocks.h"

#include <map>
#include <random>

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

TEST(BlockCounts, counts_as_a_map_does_through_growth_and_shrinking) {
  std::mt19937_64 random(3);
  BlockCounts counts;
  std::map<BlockHash, int> model;
  std::size_t most = 0;
  for (int step = 0; step < 60000; ++step) {
    // Few low words, so that many blocks have one home, some at the end of the table.
    const BlockHash hash{random() % 40, step < 2000 ? 1020 + random() % 8 : random() % 4000 * 1023};
    const bool adds = step < 30000 ? random() % 4 != 0 : random() % 8 == 0;
    if (adds) {
      counts.add(hash);
      ++model[hash];
    } else if (!model.empty()) {
      auto at = model.lower_bound(hash);
      if (at == model.end()) at = model.begin();
      counts.remove(BlockHash(at->first));
      if (--at->second == 0) model.erase(at);
    }
    ASSERT_EQ(counts.is_empty(), model.empty());
    ASSERT_EQ(counts.contains(hash), model.contains(hash));
    most = std::max(most, counts.capacity());
    if (step % 1000 != 0) continue;
    for (const auto& [known, n] : model) ASSERT_TRUE(counts.contains(known));
  }
  EXPECT_LT(counts.capacity(), most);
  EXPECT_LE(counts.capacity(), std::max<std::size_t>(1024, 8 * (model.size() + 16)));
}

TEST(RunningBlocksDeathTest, aborts_where_hashes_were_lost) {
  const std::vector<BlockHash> hashes{{1, 1}, {2, 2}};
  RunningBlocks blocks(1);
  blocks.update(SlotId{0}, hashes);
  EXPECT_DEATH(blocks.remove(SlotId{0}, std::span(hashes).first(1)), "lost hashes");
}

}  // namespace
}  // namespace baton
