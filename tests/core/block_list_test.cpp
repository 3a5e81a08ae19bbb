/// Tests of containers in blocks: what they hold stays where it is, whatever its size.
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "core/block_list.h"

namespace baton {
namespace {

TEST(BlockList, elements_stay_where_they_are) {
  BlockList<std::size_t> list;
  EXPECT_TRUE(list.empty());
  list.push_back(0);
  const std::size_t* first = &list[0];
  constexpr std::size_t kMany = 3 * kBlockBytes / sizeof(std::size_t) + 1;
  for (std::size_t i = 1; i < kMany; ++i) list.push_back(i);
  EXPECT_EQ(first, &list[0]);
  ASSERT_EQ(list.size(), kMany);
  for (std::size_t i = 0; i < kMany; ++i) ASSERT_EQ(list[i], i);
}

TEST(BlockList, elements_may_be_larger_than_half_a_block) {
  struct Large {
    char text[kBlockBytes / 2 + 1];
  };
  BlockList<Large> list;
  for (char c = 'a'; c < 'd'; ++c) list.push_back({{c}});
  EXPECT_EQ(list[0].text[0], 'a');
  EXPECT_EQ(list[2].text[0], 'c');
}

TEST(ListArena, copies_are_lists_of_any_length) {
  ListArena<int> arena;
  constexpr std::size_t kBlock = kBlockBytes / sizeof(int);
  std::vector<std::vector<int>> lists;
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, kBlock / 16, kBlock / 16 + 1, std::size_t{3}, kBlock, kBlock + 1})
    for (int round = 0; round < 40; ++round) {
      lists.emplace_back(n);
      std::iota(lists.back().begin(), lists.back().end(), round);
    }
  std::vector<std::span<const int>> copies;
  for (const std::vector<int>& list : lists) copies.push_back(arena.copy(list));
  for (std::size_t i = 0; i < lists.size(); ++i) EXPECT_EQ(lists[i], std::vector<int>(copies[i].begin(), copies[i].end())) << i;
}

}  // namespace
}  // namespace baton
