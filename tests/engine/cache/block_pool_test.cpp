/// BlockPool: compared with a naive model, and its aborts.
#include "engine/cache/block_pool.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(BlockPool, hands_out_every_block_once) {
  BlockPool pool(3);
  EXPECT_EQ(pool.allocate()->value, 0);
  EXPECT_EQ(pool.allocate()->value, 1);
  EXPECT_EQ(pool.allocate()->value, 2);
  EXPECT_FALSE(pool.allocate().has_value());
  EXPECT_EQ(pool.n_free(), 0);
  pool.check_invariants();
}

TEST(BlockPool, frees_a_block_with_its_last_holder) {
  BlockPool pool(1);
  const BlockId block = *pool.allocate();
  pool.retain(block);
  EXPECT_FALSE(pool.release(block));
  EXPECT_EQ(pool.n_free(), 0);
  EXPECT_TRUE(pool.release(block));
  EXPECT_EQ(pool.n_free(), 1);
}

TEST(BlockPool, of_no_blocks_is_empty) {
  BlockPool pool(0);
  EXPECT_FALSE(pool.allocate().has_value());
  pool.check_invariants();
}

TEST(BlockPoolDeathTest, aborts_when_a_block_is_freed_twice) {
  BlockPool pool(2);
  const BlockId block = *pool.allocate();
  pool.release(block);
  EXPECT_DEATH(pool.release(block), "freed twice");
  EXPECT_DEATH(pool.retain(block), "retained but free");
}

TEST(BlockPool, agrees_with_a_naive_model_over_random_operations) {
  std::mt19937 rng(7);
  BlockPool pool(9);
  std::map<std::int32_t, int> holders;
  for (int round = 0; round < 5000; ++round) {
    const auto pick = [&] {
      auto at = holders.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(rng() % holders.size()));
      return at;
    };
    switch (rng() % 3) {
      case 0:
        if (const auto block = pool.allocate()) {
          EXPECT_TRUE(holders.emplace(block->value, 1).second) << "a block in use was handed out";
        } else {
          EXPECT_EQ(holders.size(), 9u);
        }
        break;
      case 1:
        if (holders.empty()) break;
        {
          const auto at = pick();
          pool.retain(BlockId{at->first});
          ++at->second;
        }
        break;
      default:
        if (holders.empty()) break;
        const auto at = pick();
        EXPECT_EQ(pool.release(BlockId{at->first}), at->second == 1);
        if (--at->second == 0) holders.erase(at);
    }
    EXPECT_EQ(pool.n_free(), 9 - static_cast<int>(holders.size()));
    for (const auto& [block, count] : holders) EXPECT_EQ(pool.count(BlockId{block}), count);
    pool.check_invariants();
  }
}

}  // namespace
}  // namespace baton
