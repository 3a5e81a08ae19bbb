#include "plan/graph_variants.h"

#include <gtest/gtest.h>

#include "plan/attention_plan.h"

namespace baton {
namespace {

constexpr AttentionShape kShape{.n_heads = 32, .n_kv_heads = 8, .head_dim = 128, .kv_element_bytes = 1};
constexpr AttentionShape kOther{.n_heads = 32, .n_kv_heads = 8, .head_dim = 96, .kv_element_bytes = 1};

/// A device with larger tiles for heads of 128, whose first tiles hold 16 rows of these shapes.
AttentionCosts costs() {
  AttentionCosts costs;
  costs.row_tile_queries = 64;
  LargerTiles& larger = costs.larger_tiles[0];
  larger.costs.row_tile_queries = 128;
  larger.costs.n_workers = 100;
  larger.head_dims = {64, 128};
  larger.max_element_bytes = 2;
  larger.max_joint_element_bytes = 1;
  return costs;
}

TEST(GraphVariants, each_step_to_capture_has_the_variant_of_its_place) {
  const std::vector<AttentionShape> shapes = {kShape, kOther};
  for (const std::int32_t n_rows : {1, 16, 17, 512}) {
    const std::vector<StepInput> steps = steps_to_capture(n_rows, shapes, costs());
    ASSERT_EQ(steps.size(), n_rows > 16 ? 3u : 2u) << n_rows << " rows";
    for (std::size_t k = 0; k < steps.size(); ++k) {
      const StepView step = steps[k].view();
      EXPECT_EQ(graph_variant(step), k);
      EXPECT_EQ(step.header->n_rows, n_rows);
      EXPECT_EQ(step.n_samples(), n_rows);
      EXPECT_EQ(step.group(0).n_larger_workers, k == 2 ? 100 : 0);
      EXPECT_EQ(step.group(1).n_larger_workers, 0);
    }
  }
}

TEST(GraphVariants, a_device_with_one_kind_of_tiles_has_two) {
  EXPECT_EQ(steps_to_capture(512, std::vector{kShape}, AttentionCosts{}).size(), 2u);
  EXPECT_EQ(steps_to_capture(512, std::vector{kOther}, costs()).size(), 2u);
}

TEST(GraphVariants, a_plan_of_larger_tiles_alone_has_none) {
  AttentionPlan plan;
  plan.tile_kind = 1;
  StepInput step(2);
  append_plan(step, plan, 1);
  step.finish();
  EXPECT_EQ(graph_variant(step.view()), std::nullopt);
}

}  // namespace
}  // namespace baton
