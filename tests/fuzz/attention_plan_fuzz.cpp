/// Fuzzes the attention planner: any tree of block tables, shape and options give a plan in which the validator finds
/// no fault.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fuzzer/FuzzedDataProvider.h>

#include "core/check.h"
#include "plan/attention_plan.h"
#include "support/plan_fault.h"
#include "support/random_tree.h"

namespace {

using baton::BlockId;

baton::AttentionShape any_shape(FuzzedDataProvider& input) {
  baton::AttentionShape shape;
  shape.n_kv_heads = input.ConsumeIntegralInRange<std::int32_t>(1, 9);
  shape.n_heads = shape.n_kv_heads * input.ConsumeIntegralInRange<std::int32_t>(1, 9);
  shape.head_dim = input.PickValueInArray<std::int32_t>({64, 80, 128, 256});
  shape.kv_element_bytes = input.PickValueInArray<std::int32_t>({1, 2, 4});
  shape.window = input.ConsumeBool() ? input.ConsumeIntegralInRange<std::int32_t>(1, 600) : 0;
  shape.block_len = input.PickValueInArray<std::int32_t>({16, 32, 64, 256});
  return shape;
}

baton::AttentionPlanOptions any_options(FuzzedDataProvider& input) {
  baton::AttentionPlanOptions options;
  options.relay = input.ConsumeIntegralInRange(0, 3) != 0;
  options.batch_invariant = input.ConsumeBool();
  if (input.ConsumeBool()) {  // sharing always pays
    options.costs.partial_bytes_per_us = 1e12;
    options.costs.item_us = 0;
  }
  options.costs.n_workers = input.ConsumeIntegralInRange<std::int32_t>(1, 140);
  options.costs.row_tile = input.ConsumeIntegralInRange<std::int32_t>(1, 70);
  options.costs.row_tile_queries = input.ConsumeBool() ? input.ConsumeIntegralInRange<std::int32_t>(1, 130) : 0;
  options.costs.query_granule = input.PickValueInArray<std::int32_t>({1, 8, 16});
  options.costs.few_queries = input.ConsumeBool() ? 60 : 0;
  options.costs.merge_us = input.ConsumeBool() ? 3 : 0;
  options.costs.relay_us = input.ConsumeBool() ? 2 : 0;
  options.costs.min_piece = input.ConsumeIntegralInRange<std::int32_t>(1, 600);
  options.costs.head_by_head = input.ConsumeBool();
  options.deals_pairs = input.ConsumeBool();
  return options;
}

/// Sequences with prefixes that branch. No sequence shares a block that it writes to.
baton::testing::Batch any_batch(FuzzedDataProvider& input, std::int32_t block_len) {
  baton::testing::Batch batch;
  std::vector<std::vector<BlockId>> prefixes{{}};
  while (input.remaining_bytes() > 0 && batch.tables.size() < 60) {
    std::vector<BlockId> path = prefixes[input.ConsumeIntegralInRange<std::size_t>(0, prefixes.size() - 1)];
    if (input.ConsumeBool() && prefixes.size() < 40) {
      const std::vector<BlockId> own = batch.fresh_blocks(input.ConsumeIntegralInRange<std::int32_t>(1, 40));
      path.insert(path.end(), own.begin(), own.end());
      prefixes.push_back(std::move(path));
      continue;
    }
    const auto n_rows = input.ConsumeBool() ? input.ConsumeIntegralInRange<std::int32_t>(1, 90) : 1;
    const auto n_own = input.ConsumeIntegralInRange<std::int32_t>(0, 400);
    const auto kv_len = static_cast<std::int32_t>(path.size()) * block_len + n_own + n_rows;
    batch.add(std::move(path), kv_len, n_rows, block_len);
  }
  std::mt19937 random(1);
  batch.finish(random);
  return batch;
}

/// Makes sequences give back blocks that their window has left.
void give_back(std::mt19937& random, const baton::AttentionShape& shape, baton::testing::Batch& batch) {
  if (shape.window == 0) return;
  for (baton::SequenceRows& sequence : batch.sequences) {
    const std::int32_t kv_lo = std::max(0, sequence.kv_len - sequence.n_rows + 1 - shape.window);
    sequence.first_block = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(kv_lo / shape.block_len + 1));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  const baton::AttentionShape shape = any_shape(input);
  baton::AttentionPlanOptions options = any_options(input);
  const bool has_little_room = input.ConsumeBool();
  std::mt19937 random(input.ConsumeIntegral<std::uint32_t>());
  baton::testing::Batch batch = any_batch(input, shape.block_len);
  give_back(random, shape, batch);
  const auto check_plan = [&] {
    const baton::AttentionPlan plan = baton::plan_attention(batch.sequences, shape, options);
    const std::optional<std::string> fault = baton::test::find_plan_fault(plan, batch.sequences, shape);
    baton::check(!fault.has_value(), [&] { return *fault; });
    baton::check(!baton::to_string(plan).empty(), "a plan without text");
    return plan;
  };
  const baton::AttentionPlan plan = check_plan();
  if (!has_little_room || plan.n_partials == 0) return 0;
  // With less room than this plan needed, the planner must find one that fits, unless even a plan without sharing and
  // cuts does not.
  options.max_partials = plan.n_partials - 1;
  check_plan();
  return 0;
}
