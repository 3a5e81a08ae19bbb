#include "plan/attention_plan.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "support/attention_makespan.h"
#include "support/random_tree.h"

namespace baton {
namespace {

TEST(AppendPlan, every_array_of_the_plan_is_a_section_of_the_layer_group) {
  const testing::Batch batch = testing::prefix_batch(40, 100, 2048, 16);
  const AttentionShape shape{.n_heads = 32, .n_kv_heads = 8, .head_dim = 128};
  AttentionPlanOptions options;
  options.costs = testing::costs_of_132_blocks();
  options.deals_pairs = true;
  const AttentionPlan plan = plan_attention(batch.sequences, shape, options);
  ASSERT_GT(plan.n_partials, 0);
  StepInput step(2);
  append_plan(step, plan, 1);
  step.finish();
  const StepView view = step.view();
  EXPECT_EQ(view.count(SectionKind::rows, 1), 40);
  EXPECT_EQ(view.count(SectionKind::items, 1), static_cast<std::int32_t>(plan.items.size()));
  EXPECT_EQ(view.count(SectionKind::rows, 0), 0);
  const auto expect_equal = [&](SectionKind kind, const std::vector<std::int32_t>& elements) {
    EXPECT_TRUE(std::ranges::equal(view.span<std::int32_t>(kind, 1), elements)) << static_cast<int>(kind);
  };
  expect_equal(SectionKind::block_lists, plan.block_lists);
  expect_equal(SectionKind::merge_offsets, plan.merge_offsets);
  expect_equal(SectionKind::merge_inputs, plan.merge_inputs);
  expect_equal(SectionKind::pairs, plan.pairs);
  expect_equal(SectionKind::worker_offsets, plan.worker_offsets);
  EXPECT_EQ(view.group(1).n_partials, plan.n_partials);
  EXPECT_EQ(view.group(1).n_item_major, plan.n_item_major);
  std::int32_t most = 0;
  for (std::size_t row = 0; row < plan.rows.size(); ++row)
    most = std::max(most, plan.merge_offsets[row + 1] - plan.merge_offsets[row]);
  EXPECT_EQ(view.group(1).most_merge_inputs, most);
}

TEST(AppendPlan, a_step_that_merges_nothing_has_no_merge_inputs) {
  const AttentionShape shape{.n_heads = 32, .n_kv_heads = 8, .head_dim = 128};
  AttentionPlanOptions options;
  options.costs = testing::costs_of_132_blocks();
  const AttentionPlan plan = plan_attention(testing::prefix_batch(300, 100, 0, 16).sequences, shape, options);
  ASSERT_EQ(plan.n_partials, 0);
  StepInput step;
  append_plan(step, plan);
  step.finish();
  EXPECT_EQ(step.view().group(0).most_merge_inputs, 0);
  EXPECT_EQ(step.view().count(SectionKind::merge_inputs), 0);
}

}  // namespace
}  // namespace baton
