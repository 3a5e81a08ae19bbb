#include "kernels/attention_plan.h"

#include <gtest/gtest.h>

#include "support/random_tree.h"

namespace baton {
namespace {

using testing::Batch;
using testing::random_batch;

constexpr std::int32_t kBlockLen = 16;

AttentionShape shape_of(std::int32_t window = 0) {
  return {.n_heads = 8, .n_kv_heads = 2, .head_dim = 64, .window = window, .block_len = kBlockLen};
}

AttentionPlanOptions options_of(bool relay, bool invariant = false) {
  AttentionPlanOptions options;
  options.relay = relay;
  options.batch_invariant = invariant;
  return options;
}

/// Costs with which any shared position pays.
AttentionPlanOptions eager_options(bool invariant = false) {
  AttentionPlanOptions options = options_of(true, invariant);
  options.costs.partial_bytes_per_us = 1e12;
  options.costs.item_us = 0;
  return options;
}

void expect_valid(const AttentionPlan& plan, const Batch& batch, const AttentionShape& shape) {
  const auto fault = find_plan_fault(plan, batch.sequences, shape);
  EXPECT_FALSE(fault.has_value()) << *fault << '\n' << to_string(plan);
}

/// Two nested levels (base prompt, tenant prompt), another prompt, and strangers: the picture of a step.
Batch tenants_batch(std::mt19937& random) {
  Batch batch;
  const std::vector<BlockId> base = batch.fresh_blocks(32);
  std::vector<BlockId> tenant = base;
  const std::vector<BlockId> own = batch.fresh_blocks(16);
  tenant.insert(tenant.end(), own.begin(), own.end());
  const std::vector<BlockId> other = batch.fresh_blocks(48);
  for (int i = 0; i < 4; ++i) batch.add(tenant, 48 * kBlockLen + 20 + i, 1, kBlockLen);
  for (int i = 0; i < 3; ++i) batch.add(base, 32 * kBlockLen + 5 + i, 1, kBlockLen);
  for (int i = 0; i < 5; ++i) batch.add(other, 48 * kBlockLen + 1 + i, 1, kBlockLen);
  for (int i = 0; i < 4; ++i) batch.add({}, 100 + i, 1, kBlockLen);
  batch.finish(random);
  return batch;
}

TEST(AttentionPlan, relays_nested_levels_other_prompts_and_strangers_in_one_step) {
  std::mt19937 random(1);
  const Batch batch = tenants_batch(random);
  const AttentionPlan plan = plan_attention(batch.sequences, shape_of(), eager_options());
  expect_valid(plan, batch, shape_of());
  ASSERT_EQ(plan.stats.nodes.size(), 3u) << to_string(plan);
  const auto has_node = [&](std::int32_t begin, std::int32_t end, std::int32_t n, std::int32_t depth) {
    for (const RelayNode& node : plan.stats.nodes)
      if (node.kv_begin == begin && node.kv_end == end && node.n_sequences == n && node.depth == depth) return true;
    return false;
  };
  EXPECT_TRUE(has_node(0, 512, 7, 0)) << to_string(plan);
  EXPECT_TRUE(has_node(512, 768, 4, 1)) << to_string(plan);
  EXPECT_TRUE(has_node(0, 768, 5, 0)) << to_string(plan);
  const std::int64_t token_bytes = shape_of().token_bytes();
  EXPECT_EQ(plan.stats.kv_bytes_plain - plan.stats.kv_bytes_requested, (6 * 512 + 3 * 256 + 4 * 768) * token_bytes);
}

TEST(AttentionPlan, paged_reads_every_context_by_itself) {
  std::mt19937 random(2);
  const Batch batch = tenants_batch(random);
  const AttentionPlan plan = plan_attention(batch.sequences, shape_of(), options_of(false));
  expect_valid(plan, batch, shape_of());
  EXPECT_TRUE(plan.stats.nodes.empty());
  EXPECT_EQ(plan.stats.kv_bytes_plain, plan.stats.kv_bytes_requested);
}

TEST(AttentionPlan, does_not_relay_what_does_not_pay) {
  Batch batch;
  const std::vector<BlockId> prefix = batch.fresh_blocks(1);
  batch.add(prefix, 40, 1, kBlockLen);
  batch.add(prefix, 50, 1, kBlockLen);
  std::mt19937 random(3);
  batch.finish(random);
  const AttentionPlan plan = plan_attention(batch.sequences, shape_of(), options_of(true));
  expect_valid(plan, batch, shape_of());
  EXPECT_TRUE(plan.stats.nodes.empty()) << "16 shared tokens of two requests cost more as a node";
  EXPECT_EQ(plan.n_partials, 0);
  EXPECT_EQ(plan.stats.shareable_bytes_lost, 16 * shape_of().token_bytes());
}

TEST(AttentionPlan, random_trees_give_valid_plans_in_every_mode) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    const Batch batch = random_batch(random, round % 5, 40, 70, kBlockLen);
    for (const std::int32_t window : {0, 100, 333}) {
      const AttentionShape shape = shape_of(window);
      for (const bool invariant : {false, true}) {
        expect_valid(plan_attention(batch.sequences, shape, options_of(true, invariant)), batch, shape);
        expect_valid(plan_attention(batch.sequences, shape, options_of(false, invariant)), batch, shape);
        expect_valid(plan_attention(batch.sequences, shape, eager_options(invariant)), batch, shape);
      }
    }
    if (HasFailure()) return;
  }
}

TEST(AttentionPlan, batch_invariant_cuts_only_at_multiples_of_the_chunk) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    const Batch batch = random_batch(random, 3, 20, 40, kBlockLen);
    const AttentionPlan plan = plan_attention(batch.sequences, shape_of(), eager_options(true));
    for (const AttentionItem& item : plan.items) {
      if ((item.flags & AttentionItem::direct) != 0) continue;
      EXPECT_EQ(item.kv_begin % kAttentionChunk, 0);
      EXPECT_LE(item.kv_end, item.kv_begin + kAttentionChunk)
          << "a partial state of more than a chunk would be folded differently";
    }
  }
}

TEST(AttentionPlan, cuts_one_long_context_among_short_ones) {
  Batch batch;
  batch.add({}, 32768, 1, kBlockLen);
  for (int i = 0; i < 8; ++i) batch.add({}, 64, 1, kBlockLen);
  std::mt19937 random(6);
  batch.finish(random);
  AttentionPlanOptions options = options_of(true);
  options.costs.n_workers = 16;
  const AttentionPlan plan = plan_attention(batch.sequences, shape_of(), options);
  expect_valid(plan, batch, shape_of());
  EXPECT_GE(plan.items.size(), 8u + 16u);
}

TEST(AttentionPlan, coarsens_and_then_shares_nothing_when_buffers_are_small) {
  std::mt19937 random(7);
  const Batch batch = tenants_batch(random);
  AttentionPlanOptions options = eager_options();
  options.max_partials = 8;
  const AttentionPlan plan = plan_attention(batch.sequences, shape_of(), options);
  expect_valid(plan, batch, shape_of());
  EXPECT_LE(plan.n_partials, 8);
  EXPECT_TRUE(plan.stats.nodes.empty());
}

TEST(AttentionPlan, the_validator_sees_each_kind_of_damage) {
  std::mt19937 random(8);
  const Batch batch = tenants_batch(random);
  const AttentionPlan good = plan_attention(batch.sequences, shape_of(), eager_options());
  const auto damaged = [&](auto damage) {
    AttentionPlan plan = good;
    damage(plan);
    return find_plan_fault(plan, batch.sequences, shape_of()).has_value();
  };
  EXPECT_FALSE(damaged([](AttentionPlan&) {}));
  EXPECT_TRUE(damaged([](AttentionPlan& plan) { plan.items.pop_back(); }));
  EXPECT_TRUE(damaged([](AttentionPlan& plan) { plan.items[0].kv_end -= 1; }));
  EXPECT_TRUE(damaged([](AttentionPlan& plan) { plan.items.push_back(plan.items[0]); }));
  EXPECT_TRUE(damaged([](AttentionPlan& plan) { plan.block_lists[0] += 1; }));
  EXPECT_TRUE(damaged([](AttentionPlan& plan) { plan.items[0].flags |= AttentionItem::direct; }));
  EXPECT_TRUE(damaged([](AttentionPlan& plan) { std::swap(plan.merge_slots.front(), plan.merge_slots.back()); }));
  EXPECT_TRUE(damaged([](AttentionPlan& plan) { plan.rows[0].kv_hi += 1; }));
}

TEST(AttentionPlan, an_empty_step_has_an_empty_plan) {
  const AttentionPlan plan = plan_attention({}, shape_of(), options_of(true));
  EXPECT_TRUE(plan.items.empty());
  EXPECT_EQ(plan.merge_offsets, std::vector<std::int32_t>{0});
}

}  // namespace
}  // namespace baton
