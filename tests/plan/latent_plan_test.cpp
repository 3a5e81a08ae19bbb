/// Plans over keys whose beginnings are values: what a token costs, and the tiles of such keys.
#include <algorithm>

#include <gtest/gtest.h>

#include "plan/cost_model.h"
#include "support/attention_makespan.h"
#include "support/plan_fault.h"
#include "support/random_tree.h"

namespace baton {
namespace {

/// GLM-4.7-Flash: 20 heads over keys of 512 + 64 elements.
constexpr AttentionShape kLatentShape{.n_heads = 20, .n_kv_heads = 1, .head_dim = 576, .latent_dim = 512};
/// The same with values of their own.
constexpr AttentionShape kWholeShape{.n_heads = 20, .n_kv_heads = 1, .head_dim = 576};

/// An H200 with tiles for such keys, close to those of CudaBackend::tuning.
AttentionCosts costs_with_latent_tiles() {
  AttentionCosts costs = testing::costs_of_h200();
  costs.larger_tiles[0] = {
      .costs = {.n_workers = 132, .row_tile_queries = 128}, .head_dims = {64, 128}, .max_element_bytes = 2};
  costs.latent_tiles = {
      .costs = {.flops_per_us = 500e6, .n_workers = 131, .row_tile_queries = 64}, .query_granule = 64, .item_us = 5};
  return costs;
}

TEST(LatentPlan, a_token_has_the_bytes_of_its_key_alone) {
  EXPECT_EQ(kLatentShape.token_bytes(), 576 * 2);
  EXPECT_EQ(kLatentShape.v_dim(), 512);
  EXPECT_EQ(kWholeShape.token_bytes(), 2 * 576 * 2);
  EXPECT_EQ(kWholeShape.v_dim(), 576);
}

TEST(LatentPlan, matmuls_with_values_and_partial_states_are_those_of_the_latent_vector) {
  const AttentionCosts costs = testing::costs_of_h200();
  const AttentionCostModel latent(kLatentShape, costs);
  const AttentionCostModel whole(kWholeShape, costs);
  for (const std::int32_t n_rows : {1, 2, 3, 40}) {
    EXPECT_DOUBLE_EQ(latent.reads_of(n_rows).matmul_us / whole.reads_of(n_rows).matmul_us, (576.0 + 512) / (2 * 576));
    EXPECT_EQ(latent.reads_of(n_rows).n_reads, whole.reads_of(n_rows).n_reads);
  }
  EXPECT_DOUBLE_EQ(latent.partials_us(7) / whole.partials_us(7), (4.0 * 512 + 8) / (4 * 576 + 8));
  // One row reads keys at the rate of memory, and there are half as many bytes.
  AttentionCosts slow = costs;
  slow.memory_bytes_per_us = slow.cache_bytes_per_us = 1;
  const AttentionCostModel slow_latent(kLatentShape, slow);
  EXPECT_DOUBLE_EQ(slow_latent.run_us(slow_latent.reads_of(1), 100, false), 100 * 576 * 2);
}

TEST(LatentPlan, costs_are_those_of_latent_tiles_where_a_device_has_them) {
  const AttentionCosts costs = costs_with_latent_tiles();
  const AttentionCosts of_latent = costs.of_shape(kLatentShape);
  EXPECT_EQ(of_latent.row_tile_queries, 64);
  EXPECT_EQ(of_latent.n_workers, 131);
  EXPECT_EQ(of_latent.flops_per_us, 500e6);
  EXPECT_EQ(of_latent.query_granule, 64);
  EXPECT_EQ(of_latent.few_queries, 0);
  EXPECT_EQ(of_latent.item_us, 5);
  EXPECT_EQ(of_latent.larger_tiles[0].costs.row_tile_queries, 0) << "one kind of tiles";
  EXPECT_EQ(of_latent.memory_bytes_per_us, costs.memory_bytes_per_us);
  EXPECT_EQ(of_latent.merge_us, costs.merge_us);
  const AttentionCosts of_whole = costs.of_shape(kWholeShape);
  EXPECT_EQ(of_whole.n_workers, costs.n_workers);
  EXPECT_EQ(of_whole.few_queries, costs.few_queries);
  EXPECT_EQ(of_whole.larger_tiles[0].costs.row_tile_queries, 128);
  const AttentionCosts none = testing::costs_of_h200().of_shape(kLatentShape);
  EXPECT_EQ(none.n_workers, testing::costs_of_h200().n_workers) << "the device has no such tiles";
}

TEST(LatentPlan, relays_a_prompt_in_tiles_of_its_kernel) {
  const testing::Batch batch = testing::prefix_batch(32, 128, 8192, kLatentShape.block_len);
  AttentionPlanOptions options;
  options.costs = costs_with_latent_tiles();
  options.deals_pairs = true;
  const AttentionPlan plan = plan_attention(batch.sequences, kLatentShape, options);
  ASSERT_EQ(test::find_plan_fault(plan, batch.sequences, kLatentShape), std::nullopt);
  EXPECT_EQ(plan.tile_kind, 0);
  EXPECT_EQ(plan.row_tile, 3) << "64 query rows of 20 heads";
  EXPECT_EQ(plan.worker_offsets.size(), 132u);
  ASSERT_EQ(plan.stats.nodes.size(), 1u) << to_string(plan);
  EXPECT_EQ(plan.stats.nodes[0].kv_end, 8192);
  EXPECT_EQ(plan.stats.kv_bytes_plain, 32LL * (8192 + 128) * 576 * 2);
  // A read serves three rows.
  EXPECT_EQ(plan.stats.kv_bytes_requested, (11 * 8192LL + 32 * 128) * 576 * 2);
  const auto most = std::ranges::max_element(plan.items, {}, &AttentionItem::n_rows);
  EXPECT_EQ(most->n_rows, 3);
}

TEST(LatentPlan, one_request_is_cut_into_shorter_pieces_than_with_values_of_its_own) {
  const testing::Batch batch = testing::prefix_batch(1, 160, 8192, kLatentShape.block_len);
  AttentionPlanOptions options;
  options.costs = costs_with_latent_tiles();
  options.deals_pairs = true;
  const AttentionPlan plan = plan_attention(batch.sequences, kLatentShape, options);
  ASSERT_EQ(test::find_plan_fault(plan, batch.sequences, kLatentShape), std::nullopt);
  EXPECT_EQ(plan.items.size(), 66u) << "pieces of 128, and the last\n" << to_string(plan);
  EXPECT_LE(plan_attention(batch.sequences, kWholeShape, options).items.size(), 8352u / 256);
}

}  // namespace
}  // namespace baton
