/// BatchBuilder: rows, sampling metadata and KV indices of a step, and the bytes that each sequence reads.
#include "engine/step/batch_builder.h"

#include <map>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/sequence_editor.h"

namespace baton {
namespace {

constexpr std::int32_t kBuiltBlockLen = 16;

/// Sequences in the state in which planning leaves them.
struct Batch {
  std::map<SequenceId, Sequence> sequences;
  StepPlan plan;

  /// Adds a sequence whose `n_rows` rows end at position `kv_len`. `n_unknown` (0 or 1) of its last tokens are in
  /// flight.
  void add(std::vector<std::int32_t> blocks, std::int32_t kv_len, std::int32_t n_rows, std::int32_t n_unknown = 0,
           bool samples = true) {
    const SequenceId id{static_cast<std::int64_t>(sequences.size())};
    SequenceTask task;
    task.id = id;
    task.sampling.seed = 1;
    task.prompt_len = 1;
    task.max_len = 10000;
    std::vector<TokenId> tokens;
    for (std::int32_t i = 0; i < kv_len - n_unknown; ++i) tokens.push_back(static_cast<TokenId>(1000 * id.value + i));
    Sequence& sequence = sequences.try_emplace(id, std::move(task), std::move(tokens)).first->second;
    SequenceSchedule& schedule = SequenceEditor::schedule(sequence);
    schedule.slot = SlotId{static_cast<std::int32_t>(id.value) + 10};
    schedule.n_planned = kv_len;
    schedule.n_samples_in_flight = n_unknown + (samples ? 1 : 0);
    schedule.table.groups.resize(2);
    for (GroupTable& group : schedule.table.groups)
      for (const std::int32_t block : blocks) group.blocks.push_back(BlockId{block});
    plan.sequences.push_back({id, schedule.slot, kv_len - n_rows, n_rows, samples ? 1 : 0});
    plan.n_rows += n_rows;
  }
  std::vector<Sequence*> in_plan_order() {
    std::vector<Sequence*> listed;
    for (const PlannedSequence& planned : plan.sequences) listed.push_back(&sequences.at(planned.id));
    return listed;
  }
  BuiltStep build(BatchBuilder builder) { return builder.build(plan, in_plan_order()); }
};

LayerGroup group_of(std::int32_t n_layers, std::int32_t window = 0) {
  return {{.n_heads = 8, .n_kv_heads = 4, .head_dim = 64, .kv_element_bytes = 4, .window = window, .block_len = kBuiltBlockLen},
          n_layers};
}

std::vector<std::int32_t> numbers(std::int32_t first, std::int32_t n) {
  std::vector<std::int32_t> blocks(static_cast<std::size_t>(n));
  for (std::int32_t i = 0; i < n; ++i) blocks[static_cast<std::size_t>(i)] = first + i;
  return blocks;
}

std::vector<std::int32_t> joined_blocks(std::vector<std::int32_t> first, const std::vector<std::int32_t>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST(BatchBuilder, lays_out_rows_tokens_addresses_and_orders) {
  Batch batch;
  batch.add({5, 3}, 18, 18, 0, false);  // a part of a prompt without a result
  batch.add({2}, 9, 1, 1);              // a decode row whose token is in flight
  batch.plan.reset_slots = {SlotId{10}};
  const BuiltStep built = batch.build(BatchBuilder({group_of(1)}, {}));
  const StepView view = built.input.view();
  ASSERT_EQ(view.header->n_rows, 19);
  const auto token_ids = view.span<TokenId>(SectionKind::token_ids);
  const auto rows = view.span<TokenRow>(SectionKind::rows);
  const auto kv_indices = view.span<std::int64_t>(SectionKind::kv_indices);
  const auto samples = view.span<SamplingMetadata>(SectionKind::samples);
  EXPECT_EQ(token_ids[0], kLastTokenOfSlot) << "block 2 comes before block 5";
  EXPECT_EQ(rows[0].slot, 11);
  EXPECT_EQ(rows[0].position, 8);
  EXPECT_EQ(kv_indices[0], 2 * kBuiltBlockLen + 8);
  EXPECT_EQ(token_ids[1], 0);
  EXPECT_EQ(token_ids[18], 17);
  EXPECT_EQ(kv_indices[1], 5 * kBuiltBlockLen);
  EXPECT_EQ(kv_indices[18], 3 * kBuiltBlockLen + 1);
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].row, 0);
  EXPECT_EQ(samples[0].slot, 11);
  ASSERT_EQ(built.sequences.size(), 2u);
  EXPECT_EQ(built.sequences[0].samples.count, 0);
  EXPECT_EQ(built.sequences[1].samples.first, 0);
  EXPECT_EQ(built.sequences[1].samples.count, 1);
  EXPECT_EQ(view.span<std::int32_t>(SectionKind::reset_slots)[0], 10);
}

TEST(BatchBuilder, reads_results_in_the_order_of_the_plan) {
  Batch batch;
  batch.add({5, 3}, 18, 1, 1);
  batch.add({4}, 9, 4, 0, false);  // a part of a prompt: no result
  batch.add({2}, 9, 1, 1);         // its row comes before the others
  batch.add({1}, 9, 1, 1);
  BuiltStep built = batch.build(BatchBuilder({group_of(1)}, {}));
  std::vector<SampleResult> results(3);
  for (std::size_t i = 0; i < 3; ++i) results[i].token = static_cast<TokenId>(100 + i);
  built.sequences[3].sequence = nullptr;  // the last one has ended
  std::vector<StepOutcome> outcomes(7);
  read_results(batch.plan, built, results, outcomes);
  ASSERT_EQ(outcomes.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(outcomes[i].id, batch.plan.sequences[i].id);
  EXPECT_EQ(outcomes[0].tokens.at(0).token, 102) << "the blocks of the others have smaller numbers";
  EXPECT_TRUE(outcomes[1].tokens.empty());
  EXPECT_EQ(outcomes[2].tokens.at(0).token, 101);
}

TEST(BatchBuilder, charges_shared_reads_to_the_sharers_and_adds_up) {
  Batch batch;
  const auto shared = numbers(0, 64);
  for (std::int32_t i = 0; i < 4; ++i) batch.add(joined_blocks(shared, {100 + i}), 64 * kBuiltBlockLen + 5, 1);
  batch.add(numbers(200, 10), 150, 1);
  const LayerGroup group = group_of(3);
  const BuiltStep built = batch.build(BatchBuilder({group}, {}));
  ASSERT_EQ(built.nodes.size(), 1u);
  EXPECT_EQ(built.nodes[0].n_sequences, 4);
  const std::int64_t token_bytes = group.shape.token_bytes() * 3;
  EXPECT_EQ(built.kv_bytes_requested, token_bytes * (1024 + 4 * 5 + 150));
  EXPECT_EQ(built.kv_bytes_saved, token_bytes * 3 * 1024);
  for (const auto& [sequence, samples, reads] : built.sequences) {
    const bool shares = reads.id.value < 4;
    EXPECT_EQ(reads.kv_bytes_requested, token_bytes * (shares ? 256 + 5 : 150));
    EXPECT_EQ(reads.kv_bytes_saved, shares ? token_bytes * 768 : 0);
    EXPECT_EQ(reads.relayed_tokens, shares ? 1024 : 0);
    EXPECT_EQ(reads.largest_group, shares ? 4 : 1);
  }
}

TEST(BatchBuilder, saves_nothing_in_paged_mode) {
  Batch batch;
  for (std::int32_t i = 0; i < 4; ++i) batch.add(joined_blocks(numbers(0, 64), {100 + i}), 64 * kBuiltBlockLen + 5, 1);
  AttentionPlanOptions options;
  options.relay = false;
  const BuiltStep built = batch.build(BatchBuilder({group_of(2)}, options));
  EXPECT_TRUE(built.nodes.empty());
  EXPECT_EQ(built.kv_bytes_saved, 0);
}

TEST(BatchBuilder, each_layer_group_stores_and_reads_by_its_own_block_table) {
  Batch batch;
  batch.add({7, 8, 9, 10}, 55, 2);
  GroupTable& windowed = SequenceEditor::schedule(batch.sequences.at(SequenceId{0})).table.groups[1];
  windowed = {.blocks = {BlockId{}, BlockId{3}, BlockId{1}, BlockId{2}}, .first_block = 2, .spare = {}};
  const BuiltStep built = batch.build(BatchBuilder({group_of(1), group_of(1, 20)}, {}));
  const StepView view = built.input.view();
  const auto indices = [&](int group) { return view.span<std::int64_t>(SectionKind::kv_indices, group); };
  EXPECT_EQ(indices(0)[0], 10 * kBuiltBlockLen + 5);
  EXPECT_EQ(indices(1)[0], 2 * kBuiltBlockLen + 5);
  EXPECT_EQ(indices(1)[1], 2 * kBuiltBlockLen + 6);
  EXPECT_EQ(view.span<TokenRow>(SectionKind::rows, 1)[0].kv_lo, 53 + 1 - 20);
  const auto lists = view.span<std::int32_t>(SectionKind::block_lists, 1);
  EXPECT_EQ(std::vector(lists.begin(), lists.end()), (std::vector<std::int32_t>{1, 2})) << "what was given back is read";
}

TEST(BatchBuilder, of_two_layer_groups_adds_the_bytes_of_both) {
  Batch batch;
  for (std::int32_t i = 0; i < 4; ++i) batch.add(joined_blocks(numbers(0, 64), {100 + i}), 64 * kBuiltBlockLen + 5, 1);
  const BuiltStep full = batch.build(BatchBuilder({group_of(3)}, {}));
  const BuiltStep windowed = batch.build(BatchBuilder({group_of(2, 100)}, {}));
  const BuiltStep both = batch.build(BatchBuilder({group_of(3), group_of(2, 100)}, {}));
  EXPECT_EQ(both.input.view().header->n_groups, 2);
  EXPECT_EQ(both.kv_bytes_requested, full.kv_bytes_requested + windowed.kv_bytes_requested);
  EXPECT_EQ(both.kv_bytes_saved, full.kv_bytes_saved + windowed.kv_bytes_saved);
  EXPECT_LT(windowed.kv_bytes_requested, full.kv_bytes_requested);
  EXPECT_EQ(both.nodes.size(), 1u);
}

TEST(BatchBuilder, agrees_with_the_planner_on_bytes_for_random_batches) {
  std::mt19937 rng(5);
  for (int round = 0; round < 200; ++round) {
    Batch batch;
    const auto n = 1 + static_cast<std::int32_t>(rng() % 9);
    for (std::int32_t i = 0; i < n; ++i) {
      const auto shared = static_cast<std::int32_t>(rng() % 40), own = 1 + static_cast<std::int32_t>(rng() % 6);
      const auto blocks =
          joined_blocks(numbers(static_cast<std::int32_t>(rng() % 2) * 1000, shared), numbers(2000 + 100 * i, own));
      const auto kv_len = (shared + own) * kBuiltBlockLen - static_cast<std::int32_t>(rng() % 16);
      const std::uint32_t n_own = static_cast<std::uint32_t>(kv_len - shared * kBuiltBlockLen);
      batch.add(blocks, kv_len, rng() % 2 == 0 ? 1 : 1 + static_cast<std::int32_t>(rng() % n_own));
    }
    const LayerGroup group = group_of(3, rng() % 3 == 0 ? 200 : 0);
    AttentionPlanOptions options;
    options.batch_invariant = rng() % 2 == 0;
    const BuiltStep built = batch.build(BatchBuilder({group}, options));
    std::vector<SequenceRows> rows;
    for (const auto& [sequence, samples, reads] : built.sequences) {
      const PlannedSequence& planned = batch.plan.sequences[static_cast<std::size_t>(reads.id.value)];
      rows.push_back({planned.slot, batch.sequences.at(reads.id).schedule->table.blocks_of(0),
                      planned.first_position + planned.n_rows, planned.n_rows});
    }
    std::vector<SequenceRows> ordered;
    for (const std::int32_t index : depth_first_order(rows)) ordered.push_back(rows[static_cast<std::size_t>(index)]);
    const AttentionPlan plan = plan_attention(ordered, group.shape, options);
    EXPECT_EQ(built.kv_bytes_requested, 3 * plan.stats.kv_bytes_requested);
    EXPECT_EQ(built.kv_bytes_requested + built.kv_bytes_saved, 3 * plan.stats.kv_bytes_plain);
  }
}

TEST(BatchBuilder, builds_the_same_step_in_the_memory_of_another) {
  BatchBuilder reusing({group_of(2), group_of(1, 100)}, {});
  for (const std::int32_t n : {1, 40, 3, 40, 200, 7}) {
    Batch batch;
    for (std::int32_t i = 0; i < n; ++i)
      batch.add(joined_blocks(numbers(0, 64), {100 + i}), 64 * kBuiltBlockLen + 1 + i % 9, 1, i % 2);
    const BuiltStep fresh = batch.build(BatchBuilder({group_of(2), group_of(1, 100)}, {}));
    for (int again = 0; again < 2; ++again) {
      BuiltStep built = reusing.build(batch.plan, batch.in_plan_order());
      EXPECT_TRUE(std::ranges::equal(built.input.bytes(), fresh.input.bytes()));
      EXPECT_EQ(built.kv_bytes_requested, fresh.kv_bytes_requested);
      EXPECT_EQ(built.kv_bytes_saved, fresh.kv_bytes_saved);
      EXPECT_EQ(built.nodes.size(), fresh.nodes.size());
      EXPECT_EQ(built.sequences.size(), fresh.sequences.size());
      EXPECT_EQ(built.drafts_of_sample.size(), fresh.drafts_of_sample.size());
      reusing.reuse(std::move(built));
    }
  }
}

TEST(BatchBuilder, drops_memory_that_small_steps_do_not_need) {
  BatchBuilder builder({group_of(1)}, {});
  const auto capacity_after = [&](std::int32_t n) {
    Batch batch;
    for (std::int32_t i = 0; i < n; ++i) batch.add(numbers(64 * i, 64), 64 * kBuiltBlockLen, 1);
    BuiltStep built = builder.build(batch.plan, batch.in_plan_order());
    const std::size_t capacity = built.input.capacity_bytes();
    builder.reuse(std::move(built));
    return capacity;
  };
  EXPECT_GT(capacity_after(2000), 400u << 10);
  capacity_after(1);  // in the large step's memory, which goes with it
  EXPECT_LE(capacity_after(1), 64u << 10);
}

TEST(BatchBuilderDeathTest, aborts_on_a_row_whose_token_is_not_sampled) {
  Batch batch;
  batch.add({2}, 9, 1, 1);
  SequenceEditor::schedule(batch.sequences.at(SequenceId{0})).n_samples_in_flight = 0;
  EXPECT_DEATH(batch.build(BatchBuilder({group_of(1)}, {})), "is not sampled");
}

}  // namespace
}  // namespace baton
