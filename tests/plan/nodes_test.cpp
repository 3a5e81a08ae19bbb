#include "plan/nodes.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "support/attention_makespan.h"
#include "support/random_tree.h"

namespace baton {
namespace {

constexpr std::int32_t kNodeBlockLen = 16;
const AttentionShape kNodeShape{.n_heads = 8, .n_kv_heads = 2, .head_dim = 64, .block_len = kNodeBlockLen};

/// Reports of one-row sequences.
std::vector<NodeReport> reports_of(const testing::Batch& batch, const AttentionPlanOptions& options,
                                   std::int64_t* lost = nullptr) {
  std::vector<std::int32_t> first_row;
  std::vector<TokenRow> rows;
  for (const SequenceRows& sequence : batch.sequences) {
    first_row.push_back(static_cast<std::int32_t>(rows.size()));
    rows.push_back({sequence.slot.value, sequence.kv_len - 1, 0, sequence.kv_len});
  }
  first_row.push_back(static_cast<std::int32_t>(rows.size()));
  const LaidOutRows laid_out{batch.sequences, first_row, rows};
  const AttentionCostModel model(kNodeShape, options.costs);
  std::vector<NodeReport> tree;
  NodeChooser chooser;
  chooser.choose(laid_out, kNodeShape, options, model, tree);
  EXPECT_EQ(tree.size(), chooser.nodes().size());
  if (lost != nullptr) *lost = chooser.count_lost(laid_out, kNodeShape, model, tree);
  return tree;
}

/// Forty sequences after 1024 positions, ten of them after 512 more.
testing::Batch nested() {
  testing::Batch batch;
  const std::vector<BlockId> base = batch.fresh_blocks(64);
  std::vector<BlockId> tenant = base;
  const std::vector<BlockId> own = batch.fresh_blocks(32);
  tenant.insert(tenant.end(), own.begin(), own.end());
  for (int i = 0; i < 30; ++i) batch.add(base, 1024 + 40, 1, kNodeBlockLen);
  for (int i = 0; i < 10; ++i) batch.add(tenant, 1536 + 40, 1, kNodeBlockLen);
  std::mt19937 random(1);
  batch.finish(random);
  return batch;
}

/// A random tree below `table`, with one-row sequences at its nodes.
void grow(testing::Batch& batch, std::vector<BlockId> table, int depth, std::mt19937& random) {
  const std::vector<BlockId> own = batch.fresh_blocks(static_cast<int>(1 + random() % 60));
  table.insert(table.end(), own.begin(), own.end());
  const auto n_positions = static_cast<std::int32_t>(table.size()) * kNodeBlockLen;
  for (std::uint32_t n = 1 + random() % 12; n > 0; --n)
    batch.add(table, n_positions + 1 + static_cast<std::int32_t>(random() % 100), 1, kNodeBlockLen);
  if (depth == 4) return;
  for (std::uint32_t n = random() % 4; n > 0; --n) grow(batch, table, depth + 1, random);
}

TEST(AttentionNodes, a_parent_saves_only_the_reads_that_its_children_leave) {
  AttentionPlanOptions options;
  options.costs = testing::costs_of_132_blocks();
  options.deals_pairs = true;
  options.costs.merge_us = 0;
  const auto both = reports_of(nested(), options);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].choice, NodeChoice::relayed);
  EXPECT_EQ(both[1].choice, NodeChoice::relayed);
  EXPECT_EQ(both[1].depth, 1);
  // Without the inner node forty sequences would read the outer one; with it thirty-one do.
  options.costs.item_us = 1;
  testing::Batch flat;
  const std::vector<BlockId> base = flat.fresh_blocks(64);
  for (int i = 0; i < 40; ++i) flat.add(base, 1024 + 40, 1, kNodeBlockLen);
  std::mt19937 random(1);
  flat.finish(random);
  EXPECT_LT(both[0].saved_us, reports_of(flat, options).at(0).saved_us);
}

/// What a plan with these choices saves, less what it costs, by the time of each run of keys with them and without.
/// Sequences have one row each.
double saved_by(const std::vector<NodeReport>& tree, const AttentionCostModel& model) {
  const auto is_relayed = [](const NodeReport& node) { return node.choice == NodeChoice::relayed; };
  const auto holds = [](const NodeReport& outer, const NodeReport& inner) {
    return inner.kv_begin >= outer.kv_end && inner.first_sequence >= outer.first_sequence &&
           inner.first_sequence + inner.n_sequences <= outer.first_sequence + outer.n_sequences;
  };
  double saved_us = 0;
  for (const NodeReport& node : tree) {
    RunReads alone;
    for (std::int32_t i = 0; i < node.n_sequences; ++i) alone += model.reads_of(1);
    RunReads reads;
    std::int32_t n_alone = node.n_sequences;
    for (const NodeReport& inner : tree) {
      const bool is_topmost =
          holds(node, inner) && is_relayed(inner) && std::ranges::none_of(tree, [&](const NodeReport& between) {
            return is_relayed(between) && holds(node, between) && holds(between, inner);
          });
      if (!is_topmost) continue;
      reads += model.reads_of(inner.n_sequences);
      n_alone -= inner.n_sequences;
    }
    for (std::int32_t i = 0; i < n_alone; ++i) reads += model.reads_of(1);
    const std::int32_t n_keys = node.kv_end - node.kv_begin;
    saved_us += model.run_us(alone, n_keys, false);
    saved_us -= is_relayed(node) ? model.run_us(model.reads_of(node.n_sequences), n_keys, true) + node.cost_us
                                 : model.run_us(reads, n_keys, false);
  }
  return saved_us;
}

TEST(AttentionNodes, what_the_relayed_nodes_save_is_what_the_plan_saves) {
  AttentionPlanOptions options;
  options.deals_pairs = true;
  options.costs.merge_us = options.costs.relay_us = 0;
  int n_inner = 0;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    options.costs.head_by_head = seed % 2 == 0;
    options.costs.item_us = 0.02 * (random() % 50);
    testing::Batch batch;
    grow(batch, {}, /*depth=*/0, random);
    batch.finish(random);
    const auto tree = reports_of(batch, options);
    double saved_us = 0;
    for (const NodeReport& node : tree) {
      if (node.choice != NodeChoice::relayed) continue;
      saved_us += node.saved_us - node.cost_us;
      n_inner += node.depth > 0 ? 1 : 0;
    }
    const double expected = saved_by(tree, AttentionCostModel(kNodeShape, options.costs));
    EXPECT_NEAR(saved_us, expected, 1e-9 * std::abs(expected) + 1e-9) << "seed " << seed;
  }
  EXPECT_GT(n_inner, 150) << "the trees are too flat to show anything";
}

TEST(AttentionNodes, rows_that_merge_anyway_cost_one_state_and_others_two) {
  AttentionPlanOptions options;
  options.costs.item_us = 0;
  options.costs.n_workers = 1;
  options.costs.memory_bytes_per_us = 1;  // any read costs more than a partial state
  options.costs.cache_bytes_per_us = 1;
  const auto nodes = reports_of(nested(), options);
  ASSERT_EQ(nodes.size(), 2u);
  const AttentionCostModel model(kNodeShape, options.costs);
  EXPECT_NEAR(nodes[1].cost_us, model.partials_us(20), 1e-9);
  ASSERT_EQ(nodes[1].choice, NodeChoice::relayed);
  EXPECT_NEAR(nodes[0].cost_us, model.partials_us(40 + 30), 1e-9);
}

TEST(AttentionNodes, counts_what_is_read_again) {
  AttentionPlanOptions options;
  options.costs.item_us = 1e9;
  std::int64_t lost = 0;
  for (const NodeReport& node : reports_of(nested(), options, &lost)) EXPECT_EQ(node.choice, NodeChoice::costs_more);
  EXPECT_EQ(lost, 9 * 512 + 38 * 1024) << "forty reads for two of at most 32 rows";
  options.relay = false;
  EXPECT_TRUE(reports_of(nested(), options).empty());
}

}  // namespace
}  // namespace baton
