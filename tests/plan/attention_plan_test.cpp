#include "plan/attention_plan.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/attention_makespan.h"
#include "support/plan_fault.h"
#include "support/random_tree.h"

namespace baton {
namespace {

using testing::Batch;
using testing::costs_of_132_blocks;
using testing::Makespan;
using testing::prefix_batch;
using testing::random_batch;

constexpr std::int32_t kBlockLen = 16;

AttentionShape shape_of(std::int32_t window = 0) {
  return {.n_heads = 8, .n_kv_heads = 2, .head_dim = 64, .window = window, .block_len = kBlockLen};
}

/// Of rows that see chunks of so many positions.
AttentionShape chunked(std::int32_t size) {
  AttentionShape shape = shape_of(size);
  shape.is_chunked = true;
  return shape;
}

AttentionPlanOptions options_of(bool relay, bool invariant = false) {
  AttentionPlanOptions options;
  options.relay = relay;
  options.batch_invariant = invariant;
  return options;
}

/// Costs with which sharing any position pays.
AttentionPlanOptions eager_options(bool invariant = false) {
  AttentionPlanOptions options = options_of(true, invariant);
  options.costs.partial_bytes_per_us = 1e12;
  options.costs.item_us = 0;
  return options;
}

void expect_valid(const AttentionPlan& plan, const Batch& batch, const AttentionShape& shape) {
  const auto fault = test::find_plan_fault(plan, batch.sequences, shape);
  EXPECT_FALSE(fault.has_value()) << *fault << '\n' << to_string(plan);
}

/// Two nested levels (base prompt, tenant prompt), another prompt, and sequences that share nothing.
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

TEST(AttentionPlan, a_node_may_lie_across_the_begin_of_a_chunk) {
  Batch batch;
  const std::vector<BlockId> prefix = batch.fresh_blocks(8);
  for (const std::int32_t kv_len : {129, 135, 200, 241}) batch.add(prefix, kv_len, 1, kBlockLen);
  std::mt19937 random(5);
  batch.finish(random);
  const AttentionShape shape = chunked(100);
  const AttentionPlan plan = plan_attention(batch.sequences, shape, eager_options());
  expect_valid(plan, batch, shape);
  ASSERT_FALSE(plan.stats.nodes.empty()) << to_string(plan);
  EXPECT_LT(plan.stats.nodes[0].kv_end, 129);
  for (const TokenRow& row : plan.rows) EXPECT_EQ(row.kv_lo, row.position < 200 ? 100 : 200);
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
    for (const AttentionShape& shape : {shape_of(0), shape_of(100), shape_of(333), chunked(64), chunked(333)}) {
      for (const bool invariant : {false, true}) {
        expect_valid(plan_attention(batch.sequences, shape, options_of(true, invariant)), batch, shape);
        expect_valid(plan_attention(batch.sequences, shape, options_of(false, invariant)), batch, shape);
        expect_valid(plan_attention(batch.sequences, shape, eager_options(invariant)), batch, shape);
      }
    }
    if (HasFailure()) return;
  }
}

/// The batch after some or all of its sequences gave back blocks that their windows had left; these table entries are junk.
Batch without_heads(const Batch& batch, std::int32_t window, bool gives_all, std::mt19937& random) {
  Batch made = batch;
  made.tables.clear();
  for (const SequenceRows& sequence : batch.sequences) made.tables.emplace_back(sequence.blocks.begin(), sequence.blocks.end());
  for (std::size_t i = 0; i < made.sequences.size(); ++i) {
    SequenceRows& sequence = made.sequences[i];
    const std::int32_t n_free = std::max(0, sequence.kv_len - sequence.n_rows + 1 - window) / kBlockLen;
    sequence.first_block = gives_all ? n_free : static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(n_free + 1));
    for (std::int32_t b = 0; b < sequence.first_block; ++b)
      if (random() % 2 == 0) made.tables[i][static_cast<std::size_t>(b)] = BlockId{static_cast<std::int32_t>(random() % 5) - 1};
    sequence.blocks = made.tables[i];
  }
  return made;
}

TEST(AttentionPlan, no_item_reads_a_block_that_a_window_has_left) {
  std::mt19937 random(6);
  for (int round = 0; round < 200; ++round) {
    const Batch whole = random_batch(random, round % 5, 30, 70, kBlockLen);
    for (const AttentionShape& shape : {shape_of(1), shape_of(100), shape_of(333), chunked(100)}) {
      Batch batch = without_heads(whole, shape.window, round % 2 == 0, random);
      for (const bool in_order : {true, false}) {
        if (!in_order) {
          std::vector<SequenceRows> ordered;
          for (const std::int32_t index : depth_first_order(batch.sequences))
            ordered.push_back(batch.sequences[static_cast<std::size_t>(index)]);
          batch.sequences = ordered;
        }
        for (const bool invariant : {false, true}) {
          expect_valid(plan_attention(batch.sequences, shape, options_of(true, invariant)), batch, shape);
          expect_valid(plan_attention(batch.sequences, shape, options_of(false, invariant)), batch, shape);
          expect_valid(plan_attention(batch.sequences, shape, eager_options(invariant)), batch, shape);
        }
      }
    }
    if (HasFailure()) return;
  }
}

TEST(AttentionPlan, shares_what_is_left_of_a_prefix_whose_head_was_given_back) {
  constexpr std::int32_t kWindow = 500;
  Batch batch;
  const std::vector<BlockId> prefix = batch.fresh_blocks(40);
  for (std::int32_t i = 0; i < 8; ++i) batch.add(prefix, 40 * kBlockLen + 20 + 16 * i, 1, kBlockLen);
  std::mt19937 random(1);
  batch.finish(random);
  const Batch left = without_heads(batch, kWindow, true, random);
  EXPECT_GT(left.sequences.front().first_block, 0);
  EXPECT_NE(left.sequences.front().first_block, left.sequences.back().first_block);
  const AttentionPlan plan = plan_attention(left.sequences, shape_of(kWindow), eager_options());
  expect_valid(plan, left, shape_of(kWindow));
  ASSERT_EQ(plan.stats.nodes.size(), 1u);
  EXPECT_EQ(plan.stats.nodes[0].n_sequences, 8);
  EXPECT_EQ(plan.stats.nodes[0].kv_end, 40 * kBlockLen);
}

TEST(AttentionPlan, the_validator_sees_a_read_of_a_block_that_was_given_back) {
  std::mt19937 random(2);
  Batch batch;
  batch.add({}, 200, 1, kBlockLen);
  batch.finish(random);
  batch.sequences[0].first_block = 6;
  const AttentionShape shape = shape_of(100);
  AttentionPlan plan = plan_attention(batch.sequences, shape, options_of(true));
  EXPECT_FALSE(test::find_plan_fault(plan, batch.sequences, shape));
  AttentionItem& first = *std::ranges::min_element(plan.items, {}, &AttentionItem::kv_begin);
  ASSERT_EQ(first.kv_begin, 100);
  first.kv_begin -= 8;  // masked, but in block 5
  first.flags |= AttentionItem::masked;
  plan.block_lists.insert(plan.block_lists.begin(), batch.sequences[0].blocks[5].value);
  for (AttentionItem& item : plan.items) item.block_list += &item == &first ? 0 : 1;
  const auto fault = test::find_plan_fault(plan, batch.sequences, shape);
  ASSERT_TRUE(fault);
  EXPECT_NE(fault->find("no sequence of its rows holds"), std::string::npos) << *fault;
}

TEST(AttentionPlan, batch_invariant_cuts_only_at_multiples_of_the_chunk) {
  std::mt19937 random(5);
  int n_long = 0;
  for (int round = 0; round < 50; ++round) {
    const Batch batch = random_batch(random, 3, 20, 40, kBlockLen);
    const AttentionPlan plan = plan_attention(batch.sequences, shape_of(), eager_options(true));
    for (const AttentionItem& item : plan.items) {
      if ((item.flags & AttentionItem::direct) != 0) continue;
      EXPECT_EQ(item.kv_begin % kAttentionChunk, 0);
      if (item.kv_begin == 0) {
        n_long += item.kv_end > kAttentionChunk ? 1 : 0;
        continue;
      }
      EXPECT_LE(item.kv_end, item.kv_begin + kAttentionChunk)
          << "after other states, a state of more than a chunk would be folded differently";
    }
  }
  EXPECT_GT(n_long, 0) << "a row's first piece needs no more cuts than in other plans";
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
  ASSERT_EQ(plan.stats.tree.size(), 3u);
  for (const NodeReport& node : plan.stats.tree) EXPECT_EQ(node.choice, NodeChoice::no_room);
  EXPECT_EQ(plan.stats.shareable_bytes_lost, (6 * 512 + 3 * 256 + 4 * 768) * shape_of().token_bytes());
}

TEST(AttentionPlan, the_validator_sees_each_kind_of_damage) {
  std::mt19937 random(8);
  const Batch batch = tenants_batch(random);
  const AttentionPlan good = plan_attention(batch.sequences, shape_of(), eager_options());
  const auto damaged = [&](auto damage) {
    AttentionPlan plan = good;
    damage(plan);
    return test::find_plan_fault(plan, batch.sequences, shape_of()).has_value();
  };
  EXPECT_FALSE(damaged([](AttentionPlan&) {}));
  EXPECT_TRUE(damaged([](AttentionPlan& plan) { plan.items.pop_back(); }));
  EXPECT_TRUE(damaged([](AttentionPlan& plan) { plan.items[0].kv_end -= 1; }));
  EXPECT_TRUE(damaged([](AttentionPlan& plan) { plan.items.push_back(plan.items[0]); }));
  EXPECT_TRUE(damaged([](AttentionPlan& plan) { plan.block_lists[0] += 1; }));
  EXPECT_TRUE(damaged([](AttentionPlan& plan) { plan.items[0].flags |= AttentionItem::direct; }));
  EXPECT_TRUE(damaged([](AttentionPlan& plan) { std::swap(plan.merge_inputs.front(), plan.merge_inputs.back()); }));
  EXPECT_TRUE(damaged([](AttentionPlan& plan) { plan.rows[0].kv_hi += 1; }));
}

TEST(AttentionPlan, an_empty_step_has_an_empty_plan) {
  const AttentionPlan plan = plan_attention({}, shape_of(), options_of(true));
  EXPECT_TRUE(plan.items.empty());
  EXPECT_EQ(plan.merge_offsets, std::vector<std::int32_t>{0});
}

// What is relayed
// ------------------------------------------------------------------------------------------------------------

AttentionShape llama_8b() { return {.n_heads = 32, .n_kv_heads = 8, .head_dim = 128}; }
AttentionShape llama_30b() { return {.n_heads = 52, .n_kv_heads = 52, .head_dim = 128}; }

AttentionPlan plan_of(const Batch& batch, const AttentionShape& shape, const AttentionCosts& costs) {
  AttentionPlanOptions options;
  options.costs = costs;
  options.deals_pairs = !costs.head_by_head;  // as on CUDA
  AttentionPlan plan = plan_attention(batch.sequences, shape, options);
  expect_valid(plan, batch, shape);
  return plan;
}

/// One thread of the CPU in bench/results/cpu-attention.md.
AttentionCosts costs_of_one_thread() {
  AttentionCosts costs;
  costs.memory_bytes_per_us = 20e3;
  costs.cache_bytes_per_us = 64e3;
  costs.flops_per_us = 200e3;
  costs.few_queries = 0.15;
  costs.partial_bytes_per_us = 15e3;
  costs.n_workers = 1;
  costs.row_tile = 64;
  return costs;
}

TEST(AttentionPlan, on_a_cpu_relays_grouped_heads_only_where_that_was_measured_to_be_faster) {
  const auto is_relayed = [](const AttentionShape& shape, std::int32_t n, std::int32_t own, std::int32_t shared) {
    return !plan_of(prefix_batch(n, own, shared, kBlockLen), shape, costs_of_one_thread()).stats.nodes.empty();
  };
  EXPECT_FALSE(is_relayed(llama_8b(), 128, 128, 512)) << "0.93 when it was";
  EXPECT_FALSE(is_relayed(llama_8b(), 32, 128, 512)) << "0.96 when it was";
  EXPECT_FALSE(is_relayed(llama_8b(), 32, 512, 512)) << "0.97 when it was";
  EXPECT_TRUE(is_relayed(llama_8b(), 128, 128, 2048)) << "1.03";
  for (const std::int32_t n : {8, 32, 128}) EXPECT_TRUE(is_relayed(llama_8b(), n, 128, 32768)) << n << ": 1.19 to 1.33";
  EXPECT_TRUE(is_relayed(llama_8b(), 8, 128, 2048)) << "1.12";
  for (const std::int32_t shared : {128, 512, 2048, 8192}) EXPECT_TRUE(is_relayed(llama_30b(), 32, 128, shared)) << shared;
}

TEST(AttentionPlan, short_prefixes_of_8_bits_are_not_relayed_where_conversion_costs_more_than_it_saves) {
  AttentionCosts costs = testing::costs_of_h200();
  costs.conversion_ratio = 1.7;
  AttentionShape shape = llama_8b();
  const auto is_relayed = [&](std::int32_t n, std::int32_t shared) {
    return !plan_of(prefix_batch(n, 128, shared, kBlockLen), shape, costs).stats.nodes.empty();
  };
  EXPECT_TRUE(is_relayed(32, 512));  // 16 bits need no conversion
  shape.kv_element_bytes = 1;
  EXPECT_FALSE(is_relayed(32, 512)) << "15.5 us against 14.5 on an H200";
  for (const std::int32_t n : {8, 32, 128}) EXPECT_TRUE(is_relayed(n, 2048)) << n;
  EXPECT_TRUE(is_relayed(128, 512));
}

TEST(AttentionPlan, a_prefix_of_8_bits_is_cut_where_one_worker_would_end_last) {
  // A block takes 28 to 30 ns for a key and 32 query rows (bench/results/h200-fp8.md); without a ratio the model says 19 ns.
  // The prefix then stays whole, and the 52 workers that read it end after all others.
  AttentionCosts costs = testing::costs_of_h200();
  AttentionShape shape = llama_30b();
  shape.kv_element_bytes = 1;
  const auto longest_of_prefix = [&] {
    const AttentionPlan plan = plan_of(prefix_batch(32, 128, 2048, kBlockLen), shape, costs);
    std::int32_t longest = 0;
    for (const AttentionItem& item : plan.items)
      if (item.n_rows > 1) longest = std::max(longest, item.kv_end - item.kv_begin);
    return longest;
  };
  EXPECT_EQ(longest_of_prefix(), 2048);
  costs.conversion_ratio = 1.7;
  EXPECT_EQ(longest_of_prefix(), 1024);
}

TEST(AttentionPlan, prices_reads_again_by_the_cache_while_they_stay_in_it) {
  const AttentionCosts costs = costs_of_132_blocks();
  // Two concurrent reads at twice the memory's rate take as long as one read from memory.
  const AttentionPlan cached = plan_of(prefix_batch(2, 128, 8192, kBlockLen), llama_8b(), costs);
  EXPECT_TRUE(cached.stats.nodes.empty()) << to_string(cached);
  // 32768 positions of 4 KiB are more than the cache holds.
  const AttentionPlan beyond = plan_of(prefix_batch(2, 128, 32768, kBlockLen), llama_8b(), costs);
  EXPECT_EQ(beyond.stats.nodes.size(), 1u) << to_string(beyond);
  // On a CPU a head's share of the same node stays in the cache.
  AttentionCosts head_by_head = costs_of_one_thread();
  head_by_head.cache_bytes = 32 << 20;
  const AttentionPlan heads = plan_of(prefix_batch(2, 128, 32768, kBlockLen), llama_8b(), head_by_head);
  ASSERT_EQ(heads.stats.tree.size(), 1u);
  head_by_head.cache_bytes = 8 << 20;
  const AttentionPlan small = plan_of(prefix_batch(2, 128, 32768, kBlockLen), llama_8b(), head_by_head);
  EXPECT_GT(small.stats.tree.at(0).saved_us, 1.5 * heads.stats.tree.at(0).saved_us);
}

TEST(AttentionPlan, does_not_bring_merging_to_a_step_for_less_than_it_takes) {
  const Batch batch = prefix_batch(64, 1024, 128, kBlockLen);
  AttentionCosts costs = costs_of_132_blocks();
  costs.merge_us = 0;
  EXPECT_EQ(plan_of(batch, llama_8b(), costs).stats.nodes.size(), 1u);
  costs.merge_us = 5;
  const AttentionPlan plan = plan_of(batch, llama_8b(), costs);
  EXPECT_TRUE(plan.stats.nodes.empty());
  ASSERT_EQ(plan.stats.tree.size(), 1u);
  EXPECT_EQ(plan.stats.tree[0].choice, NodeChoice::merging_costs);
  EXPECT_EQ(plan.n_partials, 0);
}

TEST(AttentionPlan, counts_what_an_inner_node_saves_on_the_keys_before_it) {
  // A tree of PAT's benchmark, 2,8,16,256_256,256,32,32: the sixteen short nodes hardly pay by themselves, but each
  // also reads the 512 positions before it once for its sixteen sequences.
  Batch batch;
  for (int top = 0; top < 2; ++top) {
    const std::vector<BlockId> first = batch.fresh_blocks(16);
    for (int middle = 0; middle < 4; ++middle) {
      std::vector<BlockId> second = first;
      for (const BlockId block : batch.fresh_blocks(16)) second.push_back(block);
      for (int inner = 0; inner < 2; ++inner) {
        std::vector<BlockId> third = second;
        for (const BlockId block : batch.fresh_blocks(2)) third.push_back(block);
        for (int i = 0; i < 16; ++i) batch.add(third, 576, 1, kBlockLen);
      }
    }
  }
  std::mt19937 random(1);
  batch.finish(random);
  const AttentionShape multi_head{.n_heads = 32, .n_kv_heads = 32, .head_dim = 128, .block_len = kBlockLen};
  const AttentionPlan plan = plan_of(batch, multi_head, testing::costs_of_h200());
  EXPECT_FALSE(plan.stats.nodes.empty()) << to_string(plan);
  EXPECT_LT(plan.stats.kv_bytes_requested, plan.stats.kv_bytes_plain / 8) << to_string(plan);
}

TEST(AttentionPlan, relays_only_what_saves_enough_where_the_step_merges_anyway) {
  const Batch batch = prefix_batch(8, 128, 512, kBlockLen);  // so few that contexts are cut
  AttentionCosts costs = costs_of_132_blocks();
  costs.merge_us = 100;
  const AttentionPlan relayed = plan_of(batch, llama_8b(), costs);
  ASSERT_EQ(relayed.stats.nodes.size(), 1u);
  const NodeReport& node = relayed.stats.tree.at(0);
  costs.relay_us = node.saved_us - node.cost_us + 0.1;
  const AttentionPlan paged = plan_of(batch, llama_8b(), costs);
  EXPECT_EQ(paged.stats.tree.at(0).choice, NodeChoice::merging_costs);
  EXPECT_GT(paged.n_partials, 0);
}

TEST(AttentionPlan, says_which_keys_are_older_than_the_step) {
  Batch batch = prefix_batch(2, 100, 64, kBlockLen);
  batch.sequences[0].n_rows = 3;
  AttentionPlanOptions options;
  options.relay = false;
  options.costs = costs_of_132_blocks();
  options.deals_pairs = true;
  options.costs.min_piece = 1 << 20;  // nothing is cut
  const AttentionPlan plan = plan_attention(batch.sequences, llama_8b(), options);
  ASSERT_EQ(test::find_plan_fault(plan, batch.sequences, llama_8b()), std::nullopt);
  ASSERT_EQ(plan.items.size(), 2u);
  for (const AttentionItem& item : plan.items) {
    const std::int32_t n_old = item.n_rows == 3 ? 164 - 3 : 164 - 1;
    EXPECT_EQ(item.n_settled_granules(), n_old / 16);
  }
  AttentionPlan wrong = plan;
  wrong.items[0].flags += 1 << AttentionItem::kSettledShift;
  EXPECT_NE(test::find_plan_fault(wrong, batch.sequences, llama_8b()), std::nullopt);
}

TEST(AttentionPlan, one_sequence_is_planned_alike_with_relay_and_without) {
  for (const std::int32_t len : {1, 64, 640, 4096, 131072}) {
    const Batch batch = prefix_batch(1, len, 0, kBlockLen);
    AttentionPlanOptions options;
    options.costs = costs_of_132_blocks();
    options.deals_pairs = true;
    const AttentionPlan relay = plan_attention(batch.sequences, llama_8b(), options);
    options.relay = false;
    EXPECT_EQ(to_string(relay), to_string(plan_attention(batch.sequences, llama_8b(), options)));
  }
}

TEST(AttentionPlan, says_of_every_node_whether_it_was_relayed_and_why_not) {
  std::mt19937 random(9);
  const Batch batch = tenants_batch(random);
  AttentionPlanOptions options = options_of(true);
  const AttentionPlan eager = plan_attention(batch.sequences, shape_of(), eager_options());
  EXPECT_NE(to_string(eager).find(")  relayed: saves "), std::string::npos) << to_string(eager);
  options.costs.item_us = 1e6;
  const AttentionPlan plan = plan_attention(batch.sequences, shape_of(), options);
  ASSERT_EQ(plan.stats.tree.size(), 3u);
  for (const NodeReport& node : plan.stats.tree) {
    EXPECT_EQ(node.choice, NodeChoice::costs_more);
    EXPECT_GT(node.cost_us, node.saved_us);
  }
  EXPECT_NE(to_string(plan).find("not relayed, costs more than it saves"), std::string::npos) << to_string(plan);
  const AttentionPlan windowed = plan_attention(batch.sequences, shape_of(16), eager_options());
  expect_valid(windowed, batch, shape_of(16));
  EXPECT_NE(to_string(windowed).find("outside every row's window"), std::string::npos) << to_string(windowed);
}

// Cuts and order
// -------------------------------------------------------------------------------------------------------------

struct BalanceCase {
  AttentionShape shape;
  std::int32_t n_requests, own_len, shared_len, long_len;
  double most;  ///< the last worker's end divided by the mean
};

TEST(AttentionPlan, workers_that_take_items_in_order_end_together) {
  const AttentionShape w1{.n_heads = 16, .n_kv_heads = 2, .head_dim = 128};
  std::vector<BalanceCase> cases;
  for (std::int32_t n = 256; n >= 1; n /= 2) cases.push_back({w1, n, 65536 / n, 0, 0, 1.05});
  cases.push_back({w1, 1, 131072, 0, 0, 1.05});
  cases.push_back({w1, 20, 4096, 0, 0, 1.05});
  cases.push_back({w1, 70, 1000, 0, 0, 1.1});
  for (std::int32_t shared = 64; shared <= 8192; shared *= 2) cases.push_back({llama_30b(), 32, 128, shared, 0, 1.05});
  for (const std::int32_t n : {8, 32, 128})
    for (const std::int32_t own : {128, 512})
      for (const std::int32_t shared : {512, 2048, 8192, 32768})
        cases.push_back({llama_8b(), n, own, shared, 0,
                         n == 128          ? 1.06
                         : shared >= 32768 ? 1.1
                                           : 1.2});  // few and short pieces
  cases.push_back({llama_8b(), 64, 512, 0, 131072, 1.05});
  cases.push_back({llama_8b(), 255, 300, 512, 131072, 1.05});
  const AttentionCosts costs = costs_of_132_blocks();
  for (const BalanceCase& c : cases) {
    const Batch batch = prefix_batch(c.n_requests, c.own_len, c.shared_len, kBlockLen, c.long_len);
    const AttentionPlan plan = plan_of(batch, c.shape, costs);
    const Makespan made = testing::simulate(plan, c.shape, costs);
    SCOPED_TRACE(std::to_string(c.n_requests) + " x " + std::to_string(c.own_len) + " after " + std::to_string(c.shared_len));
    EXPECT_LE(made.greedy_us, c.most * made.mean_us) << to_string(plan);
    EXPECT_NEAR(plan.stats.makespan_us, made.greedy_us, 0.05 * made.greedy_us);
    EXPECT_NEAR(plan.stats.busy_us, made.mean_us, 0.02 * made.mean_us);
    EXPECT_LE(made.dealt_us, c.most * made.mean_us) << "dealt";
  }
}

TEST(AttentionPlan, deals_every_pair_to_one_worker) {
  std::mt19937 random(13);
  for (int round = 0; round < 50; ++round) {
    const Batch batch = random_batch(random, 3, 30, 20, kBlockLen);
    AttentionCosts costs = costs_of_132_blocks();
    costs.n_workers = round % 7 == 0 ? 1 : 132;
    const AttentionPlan plan = plan_of(batch, llama_8b(), costs);
    ASSERT_EQ(plan.worker_offsets.size(), static_cast<std::size_t>(costs.n_workers) + 1);
    EXPECT_EQ(plan.worker_offsets.front(), 0);
    EXPECT_EQ(plan.worker_offsets.back(), static_cast<std::int32_t>(plan.pairs.size()));
    EXPECT_TRUE(std::ranges::is_sorted(plan.worker_offsets));
    std::vector<std::int32_t> pairs = plan.pairs;
    std::ranges::sort(pairs);
    ASSERT_EQ(pairs.size(), plan.items.size() * 8);
    for (std::size_t i = 0; i < pairs.size(); ++i) ASSERT_EQ(pairs[i], static_cast<std::int32_t>(i));
  }
  EXPECT_TRUE(plan_of(prefix_batch(3, 50, 0, kBlockLen), llama_8b(), {}).pairs.empty()) << "no caller asked for it";
}

TEST(AttentionPlan, cuts_no_more_than_balance_needs) {
  const AttentionShape shape{.n_heads = 16, .n_kv_heads = 2, .head_dim = 128};
  const auto most_states = [&](std::int32_t n, std::int32_t len) {
    const AttentionPlan plan = plan_of(prefix_batch(n, len, 0, kBlockLen), shape, costs_of_132_blocks());
    return testing::simulate(plan, shape, costs_of_132_blocks()).most_states;
  };
  EXPECT_EQ(most_states(256, 256), 0);
  EXPECT_EQ(most_states(64, 1024), 0);
  EXPECT_EQ(most_states(32, 2048), 2);
  EXPECT_EQ(most_states(8, 8192), 8);
  // 65 contexts of 130 pairs: the 132 workers take them uncut.
  EXPECT_EQ(most_states(65, 1024), 0);
  // Of 70 contexts, those without a free worker are cut small and the others stay whole.
  const AttentionPlan plan = plan_of(prefix_batch(70, 1000, 0, kBlockLen), shape, costs_of_132_blocks());
  std::int64_t n_direct = 0;
  for (const AttentionItem& item : plan.items) n_direct += item.flags & AttentionItem::direct;
  EXPECT_GE(n_direct, 60);
}

TEST(AttentionPlan, batch_invariant_pieces_have_a_chunk_however_short_pieces_may_be) {
  for (const int n : {1, 3, 40}) {
    AttentionPlanOptions options = options_of(true, true);
    options.costs = costs_of_132_blocks();
    const Batch batch = prefix_batch(n, 2000, 100, kBlockLen);
    options.costs.min_piece = kAttentionChunk;
    const std::string with_chunks = to_string(plan_attention(batch.sequences, llama_8b(), options));
    options.costs.min_piece = 64;
    EXPECT_EQ(to_string(plan_attention(batch.sequences, llama_8b(), options)), with_chunks);
  }
}

TEST(AttentionPlan, latent_keys_are_cut_into_pieces_of_their_own_length_in_runs_of_every_length) {
  const AttentionShape shape{.n_heads = 128, .n_kv_heads = 1, .head_dim = 576, .block_len = kBlockLen, .latent_dim = 512};
  for (const std::int32_t own_len : {1900, 2100}) {
    const Batch batch = prefix_batch(2, own_len, 0, kBlockLen);
    AttentionCosts costs = costs_of_132_blocks();
    costs.min_piece = 120;
    const AttentionPlan expected = plan_of(batch, shape, costs);
    EXPECT_GT(expected.items.size(), 2u * 2100 / 256) << "pieces are shorter than those of other keys";
    costs.min_piece = 256;
    costs.min_piece_of_long = 128;
    costs.long_run = 2048;
    EXPECT_EQ(to_string(plan_of(batch, shape, costs)), to_string(expected));
  }
}

TEST(AttentionPlan, pieces_are_multiples_of_64_positions_and_no_shorter_than_allowed) {
  std::mt19937 random(10);
  for (int round = 0; round < 100; ++round) {
    const Batch batch = random_batch(random, 3, 20, 4, kBlockLen);
    AttentionCosts costs = costs_of_132_blocks();
    costs.min_piece = round % 2 == 0 ? 128 : 64;
    const AttentionPlan plan = plan_of(batch, llama_8b(), costs);
    for (const AttentionItem& item : plan.items) {
      const bool ends_run = std::ranges::none_of(plan.items, [&](const AttentionItem& next) {
        return next.first_row == item.first_row && next.n_rows == item.n_rows && next.kv_begin == item.kv_end &&
               next.n_sequences == item.n_sequences;
      });
      if (!ends_run) {
        EXPECT_EQ((item.kv_end - item.kv_begin) % 64, 0) << to_string(plan);
        EXPECT_GE(item.kv_end - item.kv_begin, costs.min_piece / 64 * 64) << to_string(plan);
      }
    }
  }
}

TEST(AttentionPlan, shared_runs_start_first_and_long_ones_before_short_ones) {
  Batch batch;
  const std::vector<BlockId> shared = batch.fresh_blocks(64), longer = batch.fresh_blocks(256);
  for (int i = 0; i < 40; ++i) batch.add(shared, 1024 + 20 + 16 * (i % 7), 1, kBlockLen);
  for (int i = 0; i < 40; ++i) batch.add(longer, 4096 + 20 + 16 * (i % 5), 1, kBlockLen);
  batch.add({}, 32768, 1, kBlockLen);
  std::mt19937 random(11);
  batch.finish(random);
  const AttentionPlan plan = plan_of(batch, llama_8b(), costs_of_132_blocks());
  ASSERT_EQ(plan.stats.nodes.size(), 2u);
  std::vector<std::int32_t> shared_ends, own_lens;
  for (const AttentionItem& item : plan.items) {
    if (item.n_sequences > 1) {
      EXPECT_TRUE(own_lens.empty()) << "a context stands before a shared run";
      shared_ends.push_back(item.kv_end);
    } else if ((item.flags & AttentionItem::masked) == 0) {
      own_lens.push_back(item.kv_end - item.kv_begin);
    }
  }
  EXPECT_GT(*std::max_element(shared_ends.begin(), shared_ends.begin() + 2), 0);
  EXPECT_EQ(shared_ends.back(), 1024) << "the longer node starts first";
  EXPECT_GT(own_lens.front(), own_lens.back());
  EXPECT_LT(plan.items.back().kv_end, 8192) << "the long context is not the last to start";
}

TEST(AttentionPlan, a_read_serves_as_many_token_rows_as_its_query_rows_allow) {
  const AttentionPlan plan = plan_of(prefix_batch(70, 128, 8192, kBlockLen), llama_8b(), costs_of_132_blocks());
  EXPECT_EQ(rows_a_read(costs_of_132_blocks(), llama_8b()), 32);
  EXPECT_EQ(rows_a_read(AttentionCosts{}, llama_8b()), AttentionCosts{}.row_tile);
  // 70 rows take three reads, and the three reads of a piece are adjacent.
  for (std::size_t i = 0; plan.items[i].n_sequences > 1; i += 3) {
    EXPECT_EQ(plan.items[i].n_rows, 32);
    EXPECT_EQ(plan.items[i + 1].n_rows, 32);
    EXPECT_EQ(plan.items[i + 2].n_rows, 6);
    EXPECT_EQ(plan.items[i + 1].kv_begin, plan.items[i].kv_begin);
    EXPECT_EQ(plan.items[i + 2].kv_begin, plan.items[i].kv_begin);
  }
}

/// An H200 with both kinds of tiles.
AttentionCosts costs_of_both_kernels() {
  AttentionCosts costs = testing::costs_of_h200();
  costs.conversion_ratio = 1.7;
  costs.larger_tiles[0] = {
      .costs = {.flops_per_us = 725e6, .conversion_ratio = 1.25, .n_workers = 132, .row_tile_queries = 128},
      .head_dims = {64, 128},
      .max_element_bytes = 2,
      .max_joint_element_bytes = 1,
      .smaller_ratio = 1.9,
      .launch_us = 7,
      .least_gain = 0.2};
  return costs;
}

TEST(AttentionPlan, has_larger_tiles_where_most_rows_belong_to_sequences_that_fill_them) {
  const AttentionCosts costs = costs_of_both_kernels();
  const std::vector<BlockId> table(64);
  const auto plan_with = [&](std::int32_t n_rows, std::int32_t n_decodes, AttentionShape shape, bool batch_invariant) {
    std::vector<SequenceRows> sequences(1, {SlotId{0}, table, 1000, n_rows});
    for (std::int32_t i = 0; i < n_decodes; ++i) sequences.push_back({SlotId{1 + i}, table, 1000, 1});
    return plan_attention(sequences, shape,
                          {.relay = false, .batch_invariant = batch_invariant, .costs = costs, .deals_pairs = true});
  };
  const AttentionPlan wide = plan_with(100, 0, llama_8b(), false);
  EXPECT_EQ(wide.tile_kind, 1);
  EXPECT_EQ(wide.row_tile, 32);
  EXPECT_EQ(wide.worker_offsets.size(), 133u);
  StepInput step;
  append_plan(step, wide);
  EXPECT_EQ(step.group(0).tile_kind, 1);
  const AttentionPlan decodes = plan_with(100, 100, llama_8b(), false);
  EXPECT_EQ(decodes.tile_kind, 0) << "half of the rows are decodes";
  EXPECT_EQ(decodes.row_tile, 16);
  EXPECT_EQ(decodes.worker_offsets.size(), 265u);
  EXPECT_EQ(plan_with(16, 0, llama_8b(), false).tile_kind, 0) << "64 query rows";
  EXPECT_EQ(plan_with(17, 0, llama_8b(), false).tile_kind, 1);
  EXPECT_EQ(plan_with(100, 0, llama_8b(), true).tile_kind, 1) << "both kernels of the mode give a row the same bits";
  AttentionShape shape = llama_8b();
  shape.head_dim = 96;
  EXPECT_EQ(plan_with(100, 0, shape, false).tile_kind, 0);
  shape = llama_8b();
  shape.kv_element_bytes = 1;
  EXPECT_EQ(plan_with(100, 0, shape, false).tile_kind, 1);
}

/// A decode's own context costs larger tiles as much as 32 rows would.
TEST(AttentionPlan, has_larger_tiles_beside_decodes_only_where_prompts_are_most_of_the_work) {
  const AttentionCosts costs = costs_of_both_kernels();
  const auto kind_with = [&](std::int32_t n_rows, int n_decodes, bool batch_invariant) {
    Batch batch;
    const std::vector<BlockId> shared = batch.fresh_blocks(128);
    batch.add(shared, 2048 + n_rows, n_rows, kBlockLen);
    for (int i = 0; i < n_decodes; ++i) batch.add(shared, 2048 + 200 + i % 50, 1, kBlockLen);
    std::mt19937 random(5);
    batch.finish(random);
    return plan_attention(batch.sequences, llama_8b(),
                          {.batch_invariant = batch_invariant, .costs = costs, .deals_pairs = true})
        .tile_kind;
  };
  EXPECT_EQ(kind_with(256, 96, false), 0);
  EXPECT_EQ(kind_with(256, 224, false), 0);
  EXPECT_EQ(kind_with(1024, 96, false), 1);
  EXPECT_EQ(kind_with(256, 4, false), 1);
  EXPECT_EQ(kind_with(1024, 1, false), 1);
  EXPECT_EQ(kind_with(256, 96, true), 1) << "most rows fill a tile: that mode's kernels are not compared";
}

TEST(AttentionPlan, both_kernels_share_a_step_with_a_long_prefix_of_many_rows) {
  AttentionShape shape = llama_8b();
  shape.kv_element_bytes = 1;
  const auto batch = prefix_batch(128, 150, 8192, kBlockLen);
  const AttentionPlan plan = plan_of(batch, shape, costs_of_both_kernels());
  ASSERT_GT(plan.n_larger_workers, 66) << "most of the work is the prefix";
  ASSERT_LT(plan.n_larger_workers, 132);
  EXPECT_EQ(plan.tile_kind, 0);
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(plan.items.size()); ++i)
    EXPECT_EQ(plan.items[static_cast<std::size_t>(i)].n_rows, i < plan.n_larger_items ? 32 : 1);
  // The first workers have the pairs of the wide items, the others the rest. A multiprocessor has one or two of them.
  EXPECT_EQ(plan.worker_offsets.size(), static_cast<std::size_t>(264 - plan.n_larger_workers) + 1);
  const auto n_larger_pairs = static_cast<std::size_t>(plan.n_larger_items * shape.n_kv_heads);
  ASSERT_EQ(plan.worker_offsets[static_cast<std::size_t>(plan.n_larger_workers)], plan.n_larger_items * shape.n_kv_heads);
  std::vector<std::int32_t> pairs = plan.pairs;
  std::sort(pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(n_larger_pairs));
  std::sort(pairs.begin() + static_cast<std::ptrdiff_t>(n_larger_pairs), pairs.end());
  ASSERT_EQ(pairs.size(), plan.items.size() * static_cast<std::size_t>(shape.n_kv_heads));
  for (std::size_t i = 0; i < pairs.size(); ++i) ASSERT_EQ(pairs[i], static_cast<std::int32_t>(i));
  StepInput step;
  append_plan(step, plan);
  EXPECT_EQ(step.group(0).n_larger_workers, plan.n_larger_workers);
  EXPECT_EQ(step.group(0).tile_kind, 0);
  EXPECT_NE(to_string(plan).find(std::to_string(plan.n_larger_workers) + " of "), std::string::npos);
}

TEST(AttentionPlan, one_kernel_reads_a_step_where_two_would_save_little) {
  const auto n_larger_workers = [](std::int32_t n, std::int32_t shared, std::int32_t element_bytes) {
    AttentionShape shape = llama_8b();
    shape.kv_element_bytes = element_bytes;
    const AttentionPlan plan = plan_of(prefix_batch(n, 150, shared, kBlockLen), shape, costs_of_both_kernels());
    EXPECT_EQ(plan.worker_offsets.size(), static_cast<std::size_t>(264 - plan.n_larger_workers) + 1);
    return plan.n_larger_workers;
  };
  EXPECT_GT(n_larger_workers(128, 8192, 1), 0);
  EXPECT_EQ(n_larger_workers(128, 8192, 2), 0) << "16 bits";
  EXPECT_EQ(n_larger_workers(128, 512, 1), 0) << "a short prefix";
  EXPECT_EQ(n_larger_workers(20, 32768, 1), 0) << "80 query rows";
  EXPECT_GT(n_larger_workers(32, 32768, 1), 0) << "128 query rows";
}

// The planner itself
// ---------------------------------------------------------------------------------------------------------

TEST(AttentionPlanner, keeps_nothing_of_the_step_before) {
  std::mt19937 random(12);
  AttentionPlanner planner;
  for (int round = 0; round < 60; ++round) {
    const Batch batch = random_batch(random, round % 4, 60, 40, kBlockLen);
    const AttentionShape shape = shape_of(round % 3 == 0 ? 200 : 0);
    const AttentionPlanOptions options = round % 5 == 0 ? options_of(round % 2 == 0, true) : eager_options();
    const AttentionPlan& kept = planner.plan(batch.sequences, shape, options);
    const AttentionPlan fresh = plan_attention(batch.sequences, shape, options);
    EXPECT_EQ(to_string(kept), to_string(fresh));
    EXPECT_EQ(kept.block_lists, fresh.block_lists);
    EXPECT_EQ(kept.merge_offsets, fresh.merge_offsets);
    EXPECT_EQ(kept.merge_inputs, fresh.merge_inputs);
  }
}

/// The next step of decoding sequences: each has one more token and takes a block if it needs one. Sometimes a
/// sequence ends and another one begins in its place.
void decode_on(Batch& batch, std::mt19937& random) {
  for (std::size_t i = 0; i < batch.tables.size(); ++i) {
    auto& [kv_len, n_rows] = batch.lens[i];
    n_rows = 1;
    if (random() % 100 == 0) {
      kv_len = 1 + static_cast<std::int32_t>(random() % 500);
      batch.tables[i] = batch.fresh_blocks((kv_len + kBlockLen - 1) / kBlockLen);
    } else if (kv_len++ % kBlockLen == 0) {
      batch.tables[i].push_back(BlockId{batch.n_blocks++});
    }
  }
}

TEST(AttentionPlanner, plans_step_after_step_as_from_nothing) {
  std::mt19937 random(13);
  for (int round = 0; round < 12; ++round) {
    Batch batch = random_batch(random, round % 4, 60, 40, kBlockLen);
    AttentionPlanner planner;
    for (int step = 0; step < 40; ++step) {
      std::vector<SequenceRows> unordered;
      for (std::size_t i = 0; i < batch.tables.size(); ++i)
        unordered.push_back({SlotId{static_cast<std::int32_t>(i)}, batch.tables[i], batch.lens[i].first, batch.lens[i].second});
      const std::span<const std::int32_t> order = planner.order(unordered);
      ASSERT_EQ(std::vector<std::int32_t>(order.begin(), order.end()), depth_first_order(unordered));
      std::vector<SequenceRows> ordered;
      for (const std::int32_t index : order) ordered.push_back(unordered[static_cast<std::size_t>(index)]);
      const AttentionShape shape = shape_of(round % 3 == 0 ? 200 : 0);
      AttentionPlanOptions options = round % 5 == 0 ? options_of(true, true) : eager_options();
      options.deals_pairs = round % 2 == 0;
      StepInput kept, fresh;
      append_plan(kept, planner.plan(ordered, shape, options));
      append_plan(fresh, plan_attention(ordered, shape, options));
      kept.finish();
      fresh.finish();
      ASSERT_TRUE(std::ranges::equal(kept.bytes(), fresh.bytes())) << "round " << round << " step " << step;
      decode_on(batch, random);
    }
  }
}

TEST(AttentionPlanner, a_plan_of_256_requests_behind_a_prefix_takes_less_than_48_kilobytes) {
  for (const std::int32_t own : {16, 128, 256}) {
    const AttentionPlan plan = plan_of(prefix_batch(256, own, 2048, kBlockLen), llama_8b(), costs_of_132_blocks());
    StepInput step;
    append_plan(step, plan);
    step.finish();
    EXPECT_EQ(plan.stats.nodes.size(), 1u);
    EXPECT_LT(step.bytes().size(), 48u << 10) << own;
  }
}

}  // namespace
}  // namespace baton
