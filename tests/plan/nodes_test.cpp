#include "plan/nodes.h"

#include <gtest/gtest.h>

#include "support/attention_makespan.h"
#include "support/random_tree.h"

namespace baton {
namespace {

constexpr std::int32_t kBlockLen = 16;
const AttentionShape kShape{.n_heads = 8, .n_kv_heads = 2, .head_dim = 64, .block_len = kBlockLen};

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
  const AttentionCostModel model(kShape, options.costs);
  std::vector<NodeReport> tree;
  NodeChooser chooser;
  chooser.choose(laid_out, kShape, options, model, tree);
  EXPECT_EQ(tree.size(), chooser.nodes().size());
  if (lost != nullptr) *lost = chooser.count_lost(laid_out, kShape, model, tree);
  return tree;
}

/// Forty sequences behind 1024 positions, ten of them behind 512 more.
testing::Batch nested() {
  testing::Batch batch;
  const std::vector<BlockId> base = batch.fresh_blocks(64);
  std::vector<BlockId> tenant = base;
  const std::vector<BlockId> own = batch.fresh_blocks(32);
  tenant.insert(tenant.end(), own.begin(), own.end());
  for (int i = 0; i < 30; ++i) batch.add(base, 1024 + 40, 1, kBlockLen);
  for (int i = 0; i < 10; ++i) batch.add(tenant, 1536 + 40, 1, kBlockLen);
  std::mt19937 random(1);
  batch.finish(random);
  return batch;
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
  for (int i = 0; i < 40; ++i) flat.add(base, 1024 + 40, 1, kBlockLen);
  std::mt19937 random(1);
  flat.finish(random);
  EXPECT_LT(both[0].saved_us, reports_of(flat, options).at(0).saved_us);
}

TEST(AttentionNodes, rows_that_merge_anyway_cost_one_state_and_others_two) {
  AttentionPlanOptions options;
  options.costs.item_us = 0;
  options.costs.n_workers = 1;
  options.costs.memory_bytes_per_us = 1;  // any read costs more than a partial state
  options.costs.cache_bytes_per_us = 1;
  const auto nodes = reports_of(nested(), options);
  ASSERT_EQ(nodes.size(), 2u);
  const AttentionCostModel model(kShape, options.costs);
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
