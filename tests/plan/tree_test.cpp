#include "plan/tree.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "support/random_tree.h"

namespace baton {
namespace {

TEST(AttentionTree, counts_common_blocks_up_to_the_limit) {
  std::vector<BlockId> a(700);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = BlockId{static_cast<std::int32_t>(i)};
  for (const std::int32_t limit : {0, 1, 2, 63, 64, 127, 128, 129, 255, 300, 512, 700})
    for (const std::int32_t differs : {0, 1, 5, 64, 126, 127, 128, 200, 511, 699}) {
      std::vector<BlockId> b = a;
      b[static_cast<std::size_t>(differs)].value = -7;
      for (const std::int32_t likely : {-3, 0, 1, differs - 1, differs, differs + 1, limit, 800})
        EXPECT_EQ(count_common_blocks(a.data(), b.data(), limit, likely), std::min(limit, differs)) << likely;
      EXPECT_EQ(count_common_blocks(a.data(), a.data(), limit, 0), limit);
    }
}

TEST(AttentionTree, sorts_tables_as_a_lexicographic_sort_that_keeps_equal_ones_in_order) {
  std::mt19937 random(1);
  TableSorter sorter;
  for (int round = 0; round < 500; ++round) {
    const int n_values = 1 + static_cast<int>(random() % 4);  // few, so that prefixes and whole tables coincide
    std::vector<std::vector<BlockId>> tables(random() % 40);
    for (auto& table : tables) {
      if (&table != &tables.front() && random() % 2 == 0) {
        const auto& parent = tables[random() % static_cast<std::size_t>(&table - &tables.front())];
        table.assign(parent.begin(), parent.begin() + static_cast<std::ptrdiff_t>(random() % (parent.size() + 1)));
      }
      for (std::size_t i = random() % 6; i > 0; --i)
        table.push_back(BlockId{static_cast<std::int32_t>(random() % static_cast<unsigned>(n_values))});
    }
    // The same number of tables again: unchanged, one block longer, one with another block, two exchanged.
    for (int again = 0; again < 4; ++again) {
      const std::vector<std::span<const BlockId>> views(tables.begin(), tables.end());
      const std::span<const std::int32_t> order = sorter.sort(views);
      std::vector<std::int32_t> expected(tables.size());
      std::iota(expected.begin(), expected.end(), 0);
      std::stable_sort(expected.begin(), expected.end(), [&](std::int32_t a, std::int32_t b) {
        return tables[static_cast<std::size_t>(a)] < tables[static_cast<std::size_t>(b)];
      });
      ASSERT_EQ(std::vector<std::int32_t>(order.begin(), order.end()), expected);
      if (tables.empty()) break;
      auto& one = tables[random() % tables.size()];
      if (again == 0)
        for (auto& table : tables) table.push_back(BlockId{static_cast<std::int32_t>(random() % 3)});
      if (again == 1 && !one.empty()) one[random() % one.size()].value = static_cast<std::int32_t>(random() % 4);
      if (again == 2) std::swap(one, tables.front());
    }
  }
}

TEST(AttentionTree, has_a_node_for_each_longest_run_that_several_share) {
  std::mt19937 random(2);
  PrefixTreeBuilder builder;
  std::vector<PrefixNode> nodes;
  for (int round = 0; round < 500; ++round) {
    std::vector<std::int32_t> common(random() % 12);
    for (std::int32_t& len : common) len = 16 * static_cast<std::int32_t>(random() % 5);
    builder.build(common, nodes);
    // Every interval of neighbours that share more with each other than with the sequences beside them is a node.
    const auto n = static_cast<std::int32_t>(common.size()) + 1;
    std::size_t n_expected = 0;
    for (std::int32_t first = 0; first < n; ++first)
      for (std::int32_t last = first + 1; last < n; ++last) {
        const std::int32_t shared = *std::min_element(common.begin() + first, common.begin() + last);
        const std::int32_t before = first > 0 ? common[static_cast<std::size_t>(first) - 1] : 0;
        const std::int32_t after = last + 1 < n ? common[static_cast<std::size_t>(last)] : 0;
        if (shared <= std::max(before, after)) continue;
        ++n_expected;
        EXPECT_TRUE(std::ranges::any_of(nodes, [&](const PrefixNode& node) {
          return node.first_sequence == first && node.n_sequences == last - first + 1 && node.kv_end == shared &&
                 node.kv_begin == std::max(before, after);
        }));
      }
    ASSERT_EQ(nodes.size(), n_expected);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const PrefixNode& node = nodes[i];
      ASSERT_LT(node.parent, static_cast<std::int32_t>(i)) << "parents come first";
      if (node.parent < 0) {
        EXPECT_EQ(node.kv_begin, 0);
        EXPECT_EQ(node.depth, 0);
        continue;
      }
      const PrefixNode& parent = nodes[static_cast<std::size_t>(node.parent)];
      EXPECT_EQ(parent.kv_end, node.kv_begin);
      EXPECT_EQ(parent.depth + 1, node.depth);
      EXPECT_LE(parent.first_sequence, node.first_sequence);
      EXPECT_GE(parent.first_sequence + parent.n_sequences, node.first_sequence + node.n_sequences);
    }
  }
}

}  // namespace
}  // namespace baton
