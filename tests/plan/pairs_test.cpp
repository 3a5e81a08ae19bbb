#include "plan/pairs.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(AttentionPairs, the_next_pair_goes_to_the_worker_that_is_free_first) {
  const std::vector<double> item_us{8, 4, 2, 1};
  std::vector<std::int32_t> pairs, offsets;
  PairDealer dealer;
  // 8 and 4 start; 2 and 1 follow the 4, which ends first.
  EXPECT_NEAR(dealer.deal(item_us, 4, 1, 2, pairs, offsets), 8, 0.05);
  ASSERT_EQ(offsets.size(), 3u);
  std::vector<std::vector<std::int32_t>> of_worker;
  for (std::size_t w = 0; w < 2; ++w) of_worker.emplace_back(pairs.begin() + offsets[w], pairs.begin() + offsets[w + 1]);
  EXPECT_EQ(of_worker, (std::vector<std::vector<std::int32_t>>{{0}, {1, 2, 3}}));
}

TEST(AttentionPairs, the_first_items_go_with_all_heads_and_the_rest_head_by_head) {
  const std::vector<double> item_us{1, 1, 1};
  std::vector<std::int32_t> pairs, offsets;
  PairDealer dealer;
  dealer.deal(item_us, 1, 2, 1, pairs, offsets);
  // item * 2 + head
  EXPECT_EQ(pairs, (std::vector<std::int32_t>{0, 1, 2, 4, 3, 5}));
}

TEST(AttentionPairs, deals_nothing_and_times_of_nothing) {
  std::vector<std::int32_t> pairs{1}, offsets;
  PairDealer dealer;
  EXPECT_EQ(dealer.deal({}, 0, 8, 3, pairs, offsets), 0);
  EXPECT_TRUE(pairs.empty());
  EXPECT_EQ(offsets, (std::vector<std::int32_t>{0, 0, 0, 0}));
  dealer.deal(std::vector<double>{0, 0}, 2, 1, 3, pairs, offsets);
  EXPECT_EQ(pairs.size(), 2u);
}

}  // namespace
}  // namespace baton
