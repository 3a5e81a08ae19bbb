/// WindowBlocks: the order in which blocks are dropped.
#include "engine/cache/window_blocks.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr bool kBehind = true;
constexpr bool kAtEnd = false;

TEST(WindowBlocks, drops_what_has_left_a_window_first_and_then_by_priority) {
  WindowBlocks blocks(8);
  for (std::int32_t i = 0; i < 5; ++i) blocks.add(BlockId{i});
  EXPECT_FALSE(blocks.next()) << "sequences use all of them";
  blocks.unhold(BlockId{0}, kAtEnd, 1, 1);
  blocks.unhold(BlockId{1}, kBehind, 9, 2);
  blocks.unhold(BlockId{2}, kBehind, 5, 4);
  blocks.unhold(BlockId{3}, kBehind, 5, 3);
  for (const std::int32_t expected : {3, 2, 1, 0}) {
    ASSERT_EQ(blocks.next(), BlockId{expected});
    blocks.remove(*blocks.next());
    blocks.check_invariants();
  }
  EXPECT_FALSE(blocks.next());
  EXPECT_EQ(blocks.n_blocks(), 1);
}

TEST(WindowBlocks, drops_one_end_before_another_and_not_a_block_of_each) {
  WindowBlocks blocks(6);
  for (std::int32_t i = 0; i < 6; ++i) blocks.add(BlockId{i});
  for (std::int32_t i = 0; i < 6; ++i) blocks.unhold(BlockId{i}, kAtEnd, 7, i % 2 == 0 ? 12 : 11);  // left in turn
  for (const std::int32_t expected : {1, 3, 5, 0, 2, 4}) {
    ASSERT_EQ(blocks.next(), BlockId{expected});
    blocks.remove(*blocks.next());
  }
}

TEST(WindowBlocks, keeps_what_is_pinned_or_used_again) {
  WindowBlocks blocks(4);
  for (std::int32_t i = 0; i < 2; ++i) {
    blocks.add(BlockId{i});
    blocks.unhold(BlockId{i}, kBehind, 1, 1);
  }
  blocks.pin(BlockId{0});
  blocks.pin(BlockId{0});
  blocks.hold(BlockId{1});
  blocks.hold(BlockId{1});
  blocks.check_invariants();
  EXPECT_EQ(blocks.n_droppable(), 0);
  EXPECT_EQ(blocks.n_pinned(), 1);
  blocks.unpin(BlockId{0});
  EXPECT_FALSE(blocks.is_droppable(BlockId{0})) << "one pin is left";
  blocks.unpin(BlockId{0});
  EXPECT_EQ(blocks.next(), BlockId{0});
  blocks.unhold(BlockId{1}, kAtEnd, 0, 0);
  EXPECT_EQ(blocks.n_droppable(), 2);
  EXPECT_EQ(blocks.next(), BlockId{0}) << "it has left a window, the other has returned";
  blocks.check_invariants();
}

TEST(WindowBlocksDeathTest, aborts_when_an_unused_block_is_left) {
  WindowBlocks blocks(2);
  EXPECT_DEATH(blocks.hold(BlockId{0}), "does not hold");
  blocks.add(BlockId{0});
  blocks.unhold(BlockId{0}, kAtEnd, 0, 0);
  EXPECT_DEATH(blocks.unhold(BlockId{0}, kAtEnd, 0, 0), "no sequence uses");
  EXPECT_DEATH(blocks.unpin(BlockId{0}), "more often");
}

}  // namespace
}  // namespace baton
