/// The picture of the prefix tree: alone over tables, and as an engine gives it.
#include "engine/tree_view.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "support/kv_tables.h"
#include "support/tiny_engine.h"

namespace baton {
namespace {

using testing::count_up;

/// A table whose blocks of `tokens` are in the tree, of a sequence that begins at step `step`.
BlockTable begun(KvCache& cache, const std::vector<TokenId>& tokens, std::int64_t step) {
  BlockTable table;
  const auto n = static_cast<std::int32_t>(tokens.size());
  cache.begin(table, tokens, n - 1, step);
  EXPECT_TRUE(cache.extend(table, n));
  cache.publish(table, tokens, n, step + 1);
  return table;
}

TEST(TreeView, counts_the_sequences_that_go_through_each_node) {
  KvCache cache(64, 4, true);
  const auto shared = count_up(0, 16);
  auto left = shared, right = shared;
  left.insert(left.end(), {101, 102, 103, 104, 105});
  right.insert(right.end(), {201, 202, 203, 204, 205, 206, 207, 208, 209});
  const BlockTable a = begun(cache, left, 0), b = begun(cache, right, 1), c = begun(cache, right, 2);
  const std::vector<const BlockTable*> tables = {&a, &b, &c};
  const KvCache::Pin pin = cache.pin({}, shared);
  const TreeView view = view_tree(tables, {&pin, 1}, cache);
  ASSERT_EQ(view.nodes.size(), 3u);
  EXPECT_EQ(view.nodes[0].parent, -1);
  EXPECT_EQ(view.nodes[0].n_tokens, 16);
  EXPECT_EQ(view.nodes[0].n_sequences, 3);
  EXPECT_TRUE(view.nodes[0].is_pinned);
  std::vector<std::pair<std::int32_t, std::int32_t>> leaves;
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(view.nodes[i].parent, 0);
    EXPECT_FALSE(view.nodes[i].is_pinned);
    leaves.emplace_back(view.nodes[i].n_tokens, view.nodes[i].n_sequences);
  }
  std::ranges::sort(leaves);
  EXPECT_EQ(leaves, (std::vector<std::pair<std::int32_t, std::int32_t>>{{4, 1}, {8, 2}}));
  EXPECT_EQ(view.n_cached_tokens, 16 + 4 + 8);
  EXPECT_EQ(view.n_left_out, 0);
}

TEST(TreeView, keeps_the_nodes_that_most_sequences_use) {
  constexpr int kSequences = 600;
  KvCache cache(4096, 4, true);
  std::vector<BlockTable> tables;
  for (int i = 0; i < kSequences; ++i) {
    auto tokens = count_up(0, 8);
    for (int j = 0; j < 5; ++j) tokens.push_back(1000 + i * 8 + j);
    tables.push_back(begun(cache, tokens, i));
  }
  std::vector<const BlockTable*> pointers;
  for (const BlockTable& table : tables) pointers.push_back(&table);
  const TreeView view = view_tree(pointers, {}, cache);
  ASSERT_EQ(view.nodes.size(), kMostViewNodes);
  EXPECT_EQ(view.nodes[0].n_sequences, kSequences);
  EXPECT_EQ(view.n_left_out, kSequences + 1 - static_cast<int>(kMostViewNodes));
  for (std::size_t i = 1; i < view.nodes.size(); ++i) EXPECT_EQ(view.nodes[i].parent, 0);
}

TEST(TreeView, an_engine_draws_its_tree_when_asked) {
  auto engine = testing::make_tiny_engine({}, 256);
  EXPECT_TRUE(engine->tree()->nodes.empty());
  const auto prefix = testing::random_prompt(1, 64);
  ASSERT_TRUE(engine->pin(prefix));
  for (std::uint32_t i = 0; i < 3; ++i)
    ASSERT_TRUE(engine->submit(testing::greedy(testing::joined(prefix, testing::random_prompt(2 + i, 20)), 8)));
  for (int i = 0; i < 3; ++i) engine->step();
  engine->tree();
  engine->step();
  const auto running = engine->tree();
  ASSERT_FALSE(running->nodes.empty());
  EXPECT_EQ(running->nodes[0].n_tokens, 64);
  EXPECT_EQ(running->nodes[0].n_sequences, 3);
  EXPECT_TRUE(running->nodes[0].is_pinned);
  while (engine->step()) {
  }
  engine->tree();
  engine->step();
  const auto idle = engine->tree();
  ASSERT_EQ(idle->nodes.size(), 1u);
  EXPECT_EQ(idle->nodes[0].n_sequences, 0);
  EXPECT_GE(idle->n_cached_tokens, 64);
}

}  // namespace
}  // namespace baton
