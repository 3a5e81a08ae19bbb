/// Scheduler, by example. Its guarantees: scheduler_promises_test.cpp; random loads: scheduler_load_test.cpp.
#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "support/simulated_device.h"

namespace baton {
namespace {

using testing::give;
using testing::kBlockLen;
using testing::kStop;
using testing::make_sequence;
using testing::prompt_of;

TEST(Scheduler, cuts_a_prompt_into_chunks_of_the_budget) {
  KvCache cache(16, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 2, .max_num_batched_tokens = 6}, cache);
  scheduler.add(make_sequence(0, prompt_of(14, 1), 4));
  for (const auto& [first, n, max_tokens] : std::vector<std::array<int, 3>>{{0, 6, 0}, {6, 6, 0}, {12, 2, 1}}) {
    const StepPlan plan = scheduler.plan();
    ASSERT_EQ(plan.sequences.size(), 1u);
    EXPECT_EQ(plan.sequences[0].first_position, first);
    EXPECT_EQ(plan.sequences[0].n_rows, n);
    EXPECT_EQ(plan.sequences[0].max_tokens, max_tokens);
    EXPECT_EQ(plan.reset_slots.size(), first == 0 ? 1u : 0u);
    scheduler.check_invariants();
  }
}

TEST(Scheduler, plans_a_decode_row_before_the_token_is_known) {
  KvCache cache(16, kBlockLen, true);
  Scheduler scheduler({}, cache);
  scheduler.add(make_sequence(0, prompt_of(5, 1), 3));
  const StepPlan first = scheduler.plan();
  const StepPlan second = scheduler.plan();
  ASSERT_EQ(second.sequences.size(), 1u);
  EXPECT_EQ(second.sequences[0].first_position, 5);
  EXPECT_EQ(second.sequences[0].n_rows, 1);
  scheduler.commit(first, give(first, 7));
  EXPECT_EQ(scheduler.find(SequenceId{0})->schedule->n_committed, 5);
  const StepPlan third = scheduler.plan();
  ASSERT_EQ(third.sequences.size(), 1u);
  scheduler.commit(second, give(second, 8));
  EXPECT_TRUE(scheduler.plan().is_empty()) << "three tokens are all in flight or known: a row past max_len was planned";
  scheduler.commit(third, give(third, 9));
  EXPECT_EQ(scheduler.find(SequenceId{0})->schedule->tokens, (std::vector<TokenId>{1, 2, 3, 4, 5, 7, 8, 9}));
  scheduler.check_invariants();
}

TEST(Scheduler, puts_decodes_before_prefill_and_oldest_first) {
  KvCache cache(32, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 4, .max_num_batched_tokens = 8}, cache);
  scheduler.add(make_sequence(0, prompt_of(20, 100), 4));
  scheduler.add(make_sequence(1, prompt_of(3, 200), 4));
  scheduler.plan();
  scheduler.plan();
  const StepPlan third = scheduler.plan();  // 4 rows end the first prompt, 3 are the second's
  ASSERT_EQ(third.sequences.size(), 2u);
  scheduler.add(make_sequence(2, prompt_of(9, 300), 4));
  const StepPlan fourth = scheduler.plan();
  ASSERT_EQ(fourth.sequences.size(), 3u);
  EXPECT_EQ(fourth.sequences[0].id.value, 0);
  EXPECT_EQ(fourth.sequences[1].id.value, 1);
  EXPECT_EQ(fourth.sequences[2].id.value, 2);
  EXPECT_EQ(fourth.sequences[2].n_rows, 6);
  EXPECT_EQ(fourth.n_rows, 8);
}

TEST(Scheduler, fills_a_common_prompt_once_for_all_that_wait_for_it) {
  KvCache cache(64, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 8, .max_num_batched_tokens = 64}, cache);
  for (std::int64_t id = 0; id < 4; ++id) scheduler.add(make_sequence(id, prompt_of(18, 1), 4));
  scheduler.add(make_sequence(9, prompt_of(6, 500), 4));
  const StepPlan first = scheduler.plan();
  ASSERT_EQ(first.sequences.size(), 2u) << "the others wait for the one that fills; a stranger does not";
  EXPECT_EQ(first.sequences[1].id.value, 9);
  const StepPlan second = scheduler.plan();
  ASSERT_EQ(second.sequences.size(), 5u);
  for (const PlannedSequence& planned : second.sequences) {
    if (planned.id.value == 0 || planned.id.value == 9) continue;
    EXPECT_EQ(planned.first_position, 16);
    EXPECT_EQ(planned.n_rows, 2);
    EXPECT_EQ(scheduler.find(planned.id)->stats().cached_tokens, 16);
  }
  scheduler.check_invariants();
}

TEST(Scheduler, hands_out_what_a_commit_frees_in_the_plan_after_next) {
  KvCache cache(6, kBlockLen, false);
  Scheduler scheduler({.max_num_seqs = 1, .max_num_batched_tokens = 64}, cache);
  scheduler.add(make_sequence(0, prompt_of(8, 1), 12));
  scheduler.add(make_sequence(1, prompt_of(8, 50), 12));
  const StepPlan plan0 = scheduler.plan();
  const std::vector<BlockId> blocks = scheduler.find(SequenceId{0})->schedule->table.groups[0].blocks;
  const StepPlan plan1 = scheduler.plan();  // a row of sequence 0, which step 0 ends
  ASSERT_EQ(plan1.sequences.size(), 1u);
  EXPECT_EQ(plan1.sequences[0].id.value, 0);
  std::vector<StepOutcome> stop{{SequenceId{0}, {}, FinishReason::stop, TokenOutput{kStop, {}, {}}}};
  scheduler.commit(plan0, stop);
  EXPECT_EQ(scheduler.n_running(), 0);
  const StepPlan plan2 = scheduler.plan();
  ASSERT_EQ(plan2.sequences.size(), 1u);
  EXPECT_EQ(plan2.sequences[0].id.value, 1);
  EXPECT_EQ(plan2.sequences[0].slot, plan0.sequences[0].slot);
  EXPECT_EQ(plan2.reset_slots, std::vector{plan0.sequences[0].slot});
  EXPECT_EQ(scheduler.find(SequenceId{1})->schedule->table.blocks_of(0)[0], blocks[0]);
  scheduler.commit(plan1, give(plan1, 5));  // the dead row's result: skipped
  EXPECT_EQ(scheduler.find(SequenceId{0})->schedule->tokens.size(), 8u);
  EXPECT_EQ(scheduler.take_finished().size(), 1u);
  EXPECT_EQ(scheduler.find(SequenceId{0}), nullptr);
  scheduler.check_invariants();
}

TEST(Scheduler, preempts_the_youngest_and_keeps_its_token_in_flight) {
  KvCache cache(6, kBlockLen, false);
  Scheduler scheduler({.max_num_seqs = 4, .max_num_batched_tokens = 64}, cache);
  scheduler.add(make_sequence(0, prompt_of(7, 1), 9));
  scheduler.add(make_sequence(1, prompt_of(6, 50), 9));
  StepPlan in_flight = scheduler.plan();
  ASSERT_EQ(in_flight.sequences.size(), 2u);
  bool was_preempted = false;
  TokenId token = 100;
  for (int step = 0; step < 40 && scheduler.n_running() + scheduler.n_waiting() > 0; ++step) {
    StepPlan next = scheduler.plan();
    if (next.n_preempted > 0) {
      was_preempted = true;
      const Sequence& victim = *scheduler.find(SequenceId{1});
      EXPECT_EQ(victim.schedule->state, SequenceState::waiting);
      EXPECT_EQ(victim.schedule->n_samples_in_flight, 1);
      EXPECT_EQ(next.sequences.size(), 1u);
    }
    std::vector<StepOutcome> outcomes = give(in_flight, ++token);
    for (StepOutcome& outcome : outcomes) {
      const Sequence* sequence = scheduler.find(outcome.id);
      if (sequence != nullptr && sequence->n_generated() == 8) outcome.finished = FinishReason::length;
    }
    scheduler.commit(in_flight, outcomes);
    scheduler.check_invariants();
    in_flight = std::move(next);
  }
  EXPECT_TRUE(was_preempted);
  const auto ended = scheduler.take_finished();
  ASSERT_EQ(ended.size(), 2u);
  for (const auto& sequence : ended) EXPECT_EQ(sequence->n_generated(), 9);
  EXPECT_EQ(cache.n_used(), 0);
}

TEST(Scheduler, gives_none_the_place_of_a_preempted_sequence_whose_token_is_not_known_yet) {
  KvCache cache(7, kBlockLen, false);
  Scheduler scheduler({.max_num_seqs = 4, .max_num_batched_tokens = 64}, cache);
  scheduler.add(make_sequence(0, prompt_of(8, 1), 9));
  scheduler.add(make_sequence(1, prompt_of(8, 50), 9));
  scheduler.add(make_sequence(2, prompt_of(2, 90), 1));
  StepPlan in_flight = scheduler.plan();
  ASSERT_EQ(in_flight.sequences.size(), 2u);
  StepPlan next = scheduler.plan();
  while (next.n_preempted == 0) {
    scheduler.commit(in_flight, give(in_flight, 7));
    in_flight = std::move(next);
    next = scheduler.plan();
  }
  scheduler.finish(SequenceId{0}, FinishReason::abort);  // there is enough room
  EXPECT_TRUE(scheduler.plan().is_empty());
  scheduler.commit(in_flight, give(in_flight, 7));
  const StepPlan again = scheduler.plan();
  ASSERT_EQ(again.sequences.size(), 2u);
  EXPECT_EQ(again.sequences[0].id.value, 1);
  EXPECT_EQ(again.sequences[0].n_rows, scheduler.find(SequenceId{1})->n_tokens())
      << "the token that was in flight is one of them";
  EXPECT_EQ(again.n_recomputed_tokens, scheduler.find(SequenceId{1})->n_tokens() - 1) << "the last one was not computed before";
  EXPECT_EQ(again.sequences[1].id.value, 2);
  scheduler.check_invariants();
}

TEST(Scheduler, plans_a_row_again_when_its_commit_is_shorter) {
  KvCache cache(8, kBlockLen, true);
  Scheduler scheduler({}, cache);
  scheduler.add(make_sequence(0, prompt_of(4, 1), 4));
  StepPlan plan = scheduler.plan();
  scheduler.commit(plan, give(plan, 9));
  plan = scheduler.plan();
  EXPECT_EQ(scheduler.find(SequenceId{0})->schedule->table.blocks_of(0).size(), 2u);
  scheduler.commit(plan, std::vector<StepOutcome>{{SequenceId{0}, {}, {}, {}}});
  EXPECT_EQ(scheduler.find(SequenceId{0})->schedule->table.blocks_of(0).size(), 1u);
  scheduler.check_invariants();
  const StepPlan again = scheduler.plan();
  EXPECT_EQ(again.sequences[0].first_position, 4);
  EXPECT_EQ(again.sequences[0].n_rows, 1);
}

TEST(Scheduler, ends_a_prefix_prefill_when_its_last_row_is_committed) {
  KvCache cache(8, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 2, .max_num_batched_tokens = 6}, cache);
  scheduler.add(make_sequence(0, prompt_of(8, 1), 0));
  const StepPlan first = scheduler.plan(), second = scheduler.plan();
  EXPECT_EQ(second.sequences[0].max_tokens, 0);
  scheduler.commit(first, give(first, 0));
  EXPECT_TRUE(scheduler.take_finished().empty());
  scheduler.commit(second, give(second, 0));
  EXPECT_EQ(scheduler.take_finished().size(), 1u);
  EXPECT_EQ(cache.n_cached(), 2);
  scheduler.add(make_sequence(1, prompt_of(8, 1), 0));  // entirely cached: ends without a row
  EXPECT_TRUE(scheduler.plan().is_empty());
  EXPECT_EQ(scheduler.take_finished().size(), 1u);
  scheduler.check_invariants();
}

TEST(Scheduler, gives_back_everything_when_a_waiting_or_running_sequence_is_finished) {
  KvCache cache(8, kBlockLen, false);
  Scheduler scheduler({.max_num_seqs = 1, .max_num_batched_tokens = 64}, cache);
  scheduler.add(make_sequence(0, prompt_of(6, 1), 4));
  scheduler.add(make_sequence(1, prompt_of(6, 9), 4));
  const StepPlan plan = scheduler.plan();
  scheduler.finish(SequenceId{1}, FinishReason::abort);
  scheduler.finish(SequenceId{0}, FinishReason::stop);
  scheduler.finish(SequenceId{0}, FinishReason::abort);
  EXPECT_EQ(scheduler.take_finished().size(), 2u);
  scheduler.commit(plan, give(plan, 3));
  EXPECT_EQ(cache.n_used(), 0);
  EXPECT_TRUE(scheduler.plan().is_empty());
  scheduler.check_invariants();
}

TEST(SchedulerDeathTest, aborts_on_outcomes_out_of_the_plans_order) {
  KvCache cache(64, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 4, .max_num_batched_tokens = 64}, cache);
  scheduler.add(make_sequence(0, prompt_of(5, 1), 4));
  scheduler.add(make_sequence(1, prompt_of(5, 100), 4));
  const StepPlan plan = scheduler.plan();
  auto outcomes = give(plan, 3);
  std::ranges::reverse(outcomes);
  EXPECT_DEATH(scheduler.commit(plan, outcomes), "not in its order");
}

}  // namespace
}  // namespace baton
