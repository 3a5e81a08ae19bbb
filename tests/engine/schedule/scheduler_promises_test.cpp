/// Scheduler: what it guarantees to waiting and running sequences, by example.
#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "support/scheduler_driver.h"
#include "support/sequence_editor.h"
#include "support/simulated_device.h"

namespace baton {
namespace {

using testing::give;
using testing::kBlockLen;
using testing::make_sequence;
using testing::prompt_of;

TEST(SchedulerPromises, lets_a_long_prompt_in_beside_decodes_by_no_more_than_its_limit_a_step) {
  KvCache cache(3000, 16, true);
  Scheduler scheduler({.max_num_seqs = 8, .max_num_batched_tokens = 2048, .max_prefill_tokens = 256}, cache);
  scheduler.add(make_sequence(0, prompt_of(40, 1), 400));
  scheduler.add(make_sequence(1, prompt_of(40, 1000), 400));
  StepPlan in_flight = scheduler.plan();
  scheduler.add(make_sequence(2, prompt_of(32768, 100000), 4));
  int n_steps = 0;
  while (scheduler.find(SequenceId{2})->schedule->n_planned < 32768) {
    StepPlan next = scheduler.plan();
    ASSERT_EQ(next.n_decodes, 2);
    ASSERT_EQ(next.sequences.size(), 3u);
    ASSERT_EQ(next.n_rows - next.n_decodes, 256) << "all of the limit, and no more";
    for (int i = 0; i < 2; ++i) ASSERT_EQ(next.sequences[static_cast<std::size_t>(i)].n_rows, 1);
    scheduler.commit(in_flight, give(in_flight, 7));
    in_flight = std::move(next);
    ++n_steps;
  }
  EXPECT_EQ(n_steps, 128);
  scheduler.check_invariants();
}

/// There is one slot for states, which the next sequence could take in the plan in which the prefix ends.
TEST(SchedulerPromises, leaves_a_cached_prefix_its_snapshot_until_it_is_pinned) {
  testing::SchedulerDriver driver({.max_num_seqs = 1, .max_num_batched_tokens = 64}, {{.n_blocks = 40}}, true, 0, 1);
  driver.add(make_sequence(0, prompt_of(8 * kBlockLen, 1), 0));
  driver.run_to_end(20);
  driver.add(make_sequence(1, prompt_of(8 * kBlockLen, 1), 0));
  driver.add(make_sequence(2, prompt_of(5, 100), 3));
  driver.run_to_end(20);
  EXPECT_EQ(driver.cache.states()->n_evicted(), 1) << "the last sequence needs the slot";
}

TEST(SchedulerPromises, leaves_a_cached_prefix_its_blocks_until_it_is_pinned) {
  KvCache cache(10, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 4, .max_num_batched_tokens = 64}, cache);
  const std::vector<TokenId> prefix = prompt_of(8 * kBlockLen, 1);
  scheduler.add(make_sequence(0, prefix, 0));
  const StepPlan first = scheduler.plan();
  scheduler.commit(first, give(first, 7));
  EXPECT_EQ(scheduler.take_finished().size(), 1u);
  scheduler.add(make_sequence(1, prefix, 0));
  scheduler.add(make_sequence(2, prompt_of(5 * kBlockLen, 100), 3));
  const StepPlan second = scheduler.plan();
  EXPECT_TRUE(second.is_empty() && second.needs_another()) << "the other sequence has room in the next plan only";
  EXPECT_EQ(scheduler.take_finished().size(), 1u);
  const KvCache::Pin pin = cache.pin({}, prefix);
  EXPECT_EQ(pin.n_blocks, 8);
  cache.unpin(pin);
  EXPECT_EQ(scheduler.plan().n_rows, 5 * kBlockLen);
  scheduler.check_invariants();
}

TEST(SchedulerPromises, gives_prefill_the_whole_budget_while_none_decodes) {
  KvCache cache(3000, 16, true);
  Scheduler scheduler({.max_num_seqs = 8, .max_num_batched_tokens = 2048, .max_prefill_tokens = 256}, cache);
  scheduler.add(make_sequence(0, prompt_of(5000, 1), 4));
  EXPECT_EQ(scheduler.plan().n_rows, 2048);
  EXPECT_EQ(scheduler.plan().n_rows, 2048);
  EXPECT_EQ(scheduler.plan().n_rows, 904);
}

TEST(SchedulerPromises, lets_a_short_prompt_pass_a_long_one_that_is_being_computed) {
  KvCache cache(4000, 16, true);
  Scheduler scheduler({.max_num_seqs = 8, .max_num_batched_tokens = 2048, .max_prefill_tokens = 256}, cache);
  scheduler.add(make_sequence(0, prompt_of(20, 1), 400));
  scheduler.plan();
  scheduler.add(make_sequence(1, prompt_of(32768, 100000), 4));
  EXPECT_EQ(scheduler.plan().n_rows, 257) << "none is after it: all is its own";
  scheduler.add(make_sequence(2, prompt_of(20000, 200000), 4));
  scheduler.add(make_sequence(3, prompt_of(40, 500), 4));
  const StepPlan plan = scheduler.plan();
  ASSERT_EQ(plan.sequences.size(), 4u);
  EXPECT_EQ(plan.sequences[1].n_rows, 192);
  EXPECT_EQ(plan.sequences[2].n_rows, 48);
  EXPECT_EQ(plan.sequences[3].n_rows, 16);
  EXPECT_EQ(plan.n_rows, 257) << "every row has an owner";
  const StepPlan next = scheduler.plan();
  EXPECT_EQ(next.sequences[3].n_rows, 16);
  EXPECT_EQ(scheduler.plan().sequences[3].max_tokens, 1) << "it has all its rows, long before the long ones";
  scheduler.check_invariants();
}

TEST(SchedulerPromises, gives_the_long_prompt_what_was_kept_for_others_and_no_other_could_use) {
  KvCache cache(24, kBlockLen, false);
  Scheduler scheduler({.max_num_seqs = 8, .max_num_batched_tokens = 16}, cache);
  scheduler.add(make_sequence(0, prompt_of(60, 1), 4));
  scheduler.add(make_sequence(1, prompt_of(60, 100), 4));  // there is no room beside the first
  for (int step = 0; step < 3; ++step) {
    const StepPlan plan = scheduler.plan();
    ASSERT_EQ(plan.sequences.size(), 1u);
    EXPECT_EQ(plan.sequences[0].n_rows, 16);
    EXPECT_EQ(plan.sequences[0].max_tokens, 0);
    scheduler.check_invariants();
  }
  const StepPlan last = scheduler.plan();
  EXPECT_EQ(last.sequences[0].n_rows, 12);
  EXPECT_EQ(last.sequences[0].max_tokens, 1);
}

TEST(SchedulerPromises, waits_for_a_block_that_is_begun_though_not_filled) {
  KvCache cache(64, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 8, .max_num_batched_tokens = 4}, cache);
  scheduler.add(make_sequence(0, prompt_of(30, 1), 1));
  scheduler.add(make_sequence(1, prompt_of(30, 1), 1));
  scheduler.add(make_sequence(2, prompt_of(30, 500), 1));
  scheduler.add(make_sequence(3, prompt_of(30, 1), 1));
  std::int32_t n_rows = 0;
  for (int step = 0; step < 40; ++step) {
    const StepPlan plan = scheduler.plan();
    for (const PlannedSequence& planned : plan.sequences) n_rows += planned.n_rows;
    auto outcomes = give(plan, 7);
    for (StepOutcome& outcome : outcomes)
      if (!outcome.tokens.empty()) outcome.finished = FinishReason::length;
    scheduler.commit(plan, outcomes);
    scheduler.check_invariants();
  }
  EXPECT_EQ(scheduler.take_finished().size(), 4u);
  EXPECT_EQ(n_rows, 30 + 30 + 2 + 2) << "28 tokens of the prefix once, the last two by each";
}

TEST(SchedulerPromises, runs_no_more_sequences_than_a_step_has_rows) {
  KvCache cache(64, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 8, .max_num_batched_tokens = 3}, cache);
  for (std::int64_t id = 0; id < 8; ++id) scheduler.add(make_sequence(id, prompt_of(1, 10 * static_cast<TokenId>(id)), 9));
  StepPlan in_flight = scheduler.plan();
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(in_flight.sequences.size(), 3u);
    StepPlan next = scheduler.plan();
    scheduler.commit(in_flight, give(in_flight, 7));
    in_flight = std::move(next);
  }
}

TEST(SchedulerPromises, admits_when_the_whole_prompt_fits_and_not_when_its_first_chunk_does) {
  KvCache cache(10, kBlockLen, false);
  Scheduler scheduler({.max_num_seqs = 4, .max_num_batched_tokens = 8}, cache);
  scheduler.add(make_sequence(0, prompt_of(16, 1), 4));   // 5 blocks
  scheduler.add(make_sequence(1, prompt_of(20, 50), 4));  // 6
  scheduler.add(make_sequence(2, prompt_of(4, 90), 4));   // 2, but it arrived later
  for (int step = 0; step < 3; ++step) {
    const StepPlan plan = scheduler.plan();
    EXPECT_EQ(plan.admitted.size(), step == 0 ? 1u : 0u);
    scheduler.commit(plan, give(plan, 3));
  }
  EXPECT_EQ(scheduler.n_waiting(), 2);
  EXPECT_EQ(scheduler.n_deferred(), 0);
  scheduler.finish(SequenceId{0}, FinishReason::abort);
  EXPECT_EQ(scheduler.plan().admitted, (std::vector{SequenceId{1}, SequenceId{2}})) << "10 blocks hold 6 and 2";
}

TEST(SchedulerPromises, counts_blocks_that_are_shared_once_at_admission) {
  KvCache cache(12, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 8, .max_num_batched_tokens = 64}, cache);
  for (std::int64_t id = 0; id < 4; ++id) scheduler.add(make_sequence(id, prompt_of(25, 1), 2));  // 6 shared, 1 own
  scheduler.plan();
  EXPECT_EQ(scheduler.n_deferred(), 3);
  const StepPlan second = scheduler.plan();
  EXPECT_EQ(second.admitted.size(), 3u) << "apart they would need 28 blocks, together 10";
  EXPECT_EQ(cache.n_used(), 10);
  scheduler.check_invariants();
}

TEST(SchedulerPromises, computes_the_prefix_of_many_cold_requests_once_over_all_its_chunks) {
  KvCache cache(400, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 32, .max_num_batched_tokens = 40}, cache);
  constexpr std::int64_t kRequests = 20;
  for (std::int64_t id = 0; id < kRequests; ++id) {
    std::vector<TokenId> prompt = prompt_of(200, 1);
    for (TokenId i = 0; i < 9; ++i) prompt.push_back(1000 + 10 * static_cast<TokenId>(id) + i);
    scheduler.add(make_sequence(id, prompt, 1));
  }
  std::int32_t n_rows = 0;
  for (int step = 0; step < 60; ++step) {
    const StepPlan plan = scheduler.plan();
    n_rows += plan.n_rows;
    auto outcomes = give(plan, 7);
    for (StepOutcome& outcome : outcomes)
      if (!outcome.tokens.empty()) outcome.finished = FinishReason::length;
    scheduler.commit(plan, outcomes);
  }
  EXPECT_EQ(scheduler.take_finished().size(), static_cast<std::size_t>(kRequests));
  EXPECT_EQ(n_rows, 200 + 9 * kRequests) << "no position of the common prefix is computed twice";
}

TEST(SchedulerPromises, computes_a_common_prefix_once_even_by_chunks_that_fill_no_block) {
  KvCache cache(400, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 32, .max_num_batched_tokens = 40, .max_prefill_tokens = 3}, cache);
  scheduler.add(make_sequence(0, prompt_of(3, 900), 200));  // decodes in every step
  for (std::int64_t id = 1; id <= 5; ++id) scheduler.add(make_sequence(id, prompt_of(33, 1), 1));
  std::int32_t n_prefill = 0;
  for (int step = 0; step < 60; ++step) {
    const StepPlan plan = scheduler.plan();
    for (const PlannedSequence& planned : plan.sequences) n_prefill += planned.id.value > 0 ? planned.n_rows : 0;
    auto outcomes = give(plan, 7);
    for (StepOutcome& outcome : outcomes)
      if (outcome.id.value > 0 && !outcome.tokens.empty()) outcome.finished = FinishReason::length;
    scheduler.commit(plan, outcomes);
    scheduler.check_invariants();
  }
  EXPECT_EQ(scheduler.take_finished().size(), 5u);
  EXPECT_EQ(n_prefill, 33 + 4) << "the last token of each, and the prefix once";
}

TEST(SchedulerPromises, continues_alone_when_the_one_that_filled_the_prefix_is_gone) {
  KvCache cache(64, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 4, .max_num_batched_tokens = 8}, cache);
  for (std::int64_t id = 0; id < 2; ++id) scheduler.add(make_sequence(id, prompt_of(30, 1), 2));
  scheduler.plan();
  scheduler.finish(SequenceId{0}, FinishReason::abort);
  const StepPlan plan = scheduler.plan();
  ASSERT_EQ(plan.sequences.size(), 1u);
  EXPECT_EQ(plan.sequences[0].id.value, 1);
  EXPECT_EQ(plan.sequences[0].first_position, 8) << "what was enqueued is found";
}

TEST(SchedulerPromises, admits_by_priority_and_preempts_the_lowest_first) {
  KvCache cache(6, kBlockLen, false);
  Scheduler scheduler({.max_num_seqs = 2, .max_num_batched_tokens = 64}, cache);
  for (std::int64_t id = 0; id < 3; ++id) {
    auto sequence = make_sequence(id, prompt_of(6, 50 * static_cast<TokenId>(id)), 12);
    SequenceEditor::task(*sequence).priority = id == 0 ? 5 : id == 1 ? -1 : 0;
    scheduler.add(std::move(sequence));
  }
  StepPlan in_flight = scheduler.plan();
  EXPECT_EQ(in_flight.admitted, (std::vector{SequenceId{1}, SequenceId{2}}));
  for (int step = 0; step < 12; ++step) {
    StepPlan next = scheduler.plan();
    if (next.n_preempted > 0) {
      EXPECT_EQ(scheduler.find(SequenceId{2})->schedule->state, SequenceState::waiting);
      EXPECT_EQ(scheduler.find(SequenceId{1})->schedule->state, SequenceState::running);
      return;
    }
    scheduler.commit(in_flight, give(in_flight, 7));
    in_flight = std::move(next);
  }
  FAIL() << "nothing was preempted";
}

TEST(SchedulerPromises, preempts_none_for_a_third_time_however_many_come_that_go_before_it) {
  KvCache cache(12, kBlockLen, false);
  Scheduler scheduler({.max_num_seqs = 3, .max_num_batched_tokens = 64}, cache);
  const auto add = [&](std::int64_t id, std::int32_t priority, std::int32_t max_tokens) {
    auto sequence = make_sequence(id, prompt_of(6, 50 * static_cast<TokenId>(id)), max_tokens);
    SequenceEditor::task(*sequence).priority = priority;
    scheduler.add(std::move(sequence));
  };
  add(0, 9, 30);
  std::int64_t next_id = 1;
  StepPlan in_flight;
  bool has_ended = false;
  for (int step = 0; step < 2000 && !has_ended; ++step) {
    const Sequence& low = *scheduler.find(SequenceId{0});
    const bool is_let_in = low.schedule->n_preemptions < kMaxPreemptions || low.schedule->state == SequenceState::running;
    if (is_let_in && scheduler.n_running() + scheduler.n_waiting() < 3 && step % 7 == 0) add(next_id++, 0, 20);
    StepPlan next = scheduler.plan();
    scheduler.check_invariants();
    auto outcomes = give(in_flight, 7);
    for (StepOutcome& outcome : outcomes) {
      const Sequence* sequence = scheduler.find(outcome.id);
      if (sequence != nullptr && !outcome.tokens.empty() && sequence->n_tokens() + 1 == sequence->task->max_len)
        outcome.finished = FinishReason::length;
    }
    scheduler.commit(in_flight, outcomes);
    scheduler.check_invariants();
    in_flight = std::move(next);
    for (const auto& sequence : scheduler.take_finished()) {
      if (sequence->task->id.value != 0) continue;
      has_ended = true;
      EXPECT_EQ(sequence->schedule->n_preemptions, kMaxPreemptions) << "the load was too light to show anything";
      EXPECT_EQ(sequence->n_generated(), 30);
    }
  }
  EXPECT_TRUE(has_ended);
}

TEST(SchedulerPromises, gives_a_settled_sequence_all_its_blocks_at_once_and_takes_none_of_them_back) {
  KvCache cache(10, kBlockLen, false);
  Scheduler scheduler({.max_num_seqs = 2, .max_num_batched_tokens = 64}, cache);
  auto settled = make_sequence(0, prompt_of(4, 1), 17);  // 20 positions: 5 blocks
  SequenceEditor::task(*settled).priority = 9;
  SequenceEditor::schedule(*settled).n_preemptions = kMaxPreemptions;
  scheduler.add(std::move(settled));
  scheduler.add(make_sequence(1, prompt_of(4, 50), 30));
  StepPlan in_flight = scheduler.plan();
  ASSERT_EQ(in_flight.sequences.size(), 2u);
  EXPECT_EQ(scheduler.find(SequenceId{0})->schedule->table.blocks_of(0).size(), 5u);
  scheduler.commit(in_flight, give(in_flight, 7));
  in_flight = scheduler.plan();
  auto outcomes = give(in_flight, 7);
  for (StepOutcome& outcome : outcomes)
    if (outcome.id.value == 0) outcome.tokens.clear();
  scheduler.commit(in_flight, outcomes);
  EXPECT_EQ(scheduler.find(SequenceId{0})->schedule->table.blocks_of(0).size(), 5u) << "a shorter commit shortened its reserve";
  scheduler.check_invariants();
  // The other sequence needs more than is left. It is preempted itself, although it is earlier in the order.
  int n_preempted = 0;
  for (int step = 0; step < 30 && n_preempted == 0; ++step) {
    in_flight = scheduler.plan();
    n_preempted = in_flight.n_preempted;
    scheduler.check_invariants();
    outcomes = give(in_flight, 7);
    for (StepOutcome& outcome : outcomes)
      if (outcome.id.value == 0) outcome.tokens.clear();
    scheduler.commit(in_flight, outcomes);
  }
  EXPECT_EQ(n_preempted, 1);
  EXPECT_EQ(scheduler.find(SequenceId{0})->schedule->state, SequenceState::running);
  EXPECT_EQ(scheduler.find(SequenceId{1})->schedule->state, SequenceState::waiting);
}

TEST(SchedulerPromises, admits_a_cohort_grouped_by_prompt_and_none_after_it_before_it) {
  KvCache cache(400, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 2, .max_num_batched_tokens = 64}, cache);
  const auto add = [&](std::int64_t id, TokenId first) {
    std::vector<TokenId> prompt = prompt_of(16, first);
    prompt.push_back(5000 + static_cast<TokenId>(id));
    scheduler.add(make_sequence(id, prompt, 1));
  };
  add(0, 1);
  const StepPlan fill = scheduler.plan();
  scheduler.commit(fill, std::vector<StepOutcome>{{SequenceId{0}, {}, {}, {}}});
  for (std::int64_t id = 1; id < 40; ++id) add(id, id == 2 ? 700 : 1);
  std::vector<std::int64_t> order{0};
  for (int step = 0; step < 60; ++step) {
    const StepPlan plan = scheduler.plan();
    for (const SequenceId id : plan.admitted) order.push_back(id.value);
    auto outcomes = give(plan, 7);
    for (std::size_t i = 0; i < outcomes.size(); ++i)  // one ends in each step, so a sharer always runs
      if (i == 0 && !outcomes[i].tokens.empty())
        outcomes[i].finished = FinishReason::length;
      else
        outcomes[i].tokens.clear();
    std::erase_if(outcomes, [](const StepOutcome& outcome) { return outcome.tokens.empty(); });
    for (StepOutcome& outcome : outcomes) scheduler.commit(plan, std::span(&outcome, 1));
    for (const PlannedSequence& planned : plan.sequences) {
      if (planned.max_tokens == 0 || scheduler.find(planned.id)->schedule->state != SequenceState::running) continue;
      scheduler.commit(plan, std::vector<StepOutcome>{{planned.id, {}, {}, {}}});
    }
    scheduler.check_invariants();
  }
  ASSERT_EQ(order.size(), 40u);
  const auto place = std::ranges::find(order, 2) - order.begin();
  EXPECT_EQ(place, kCohortTurns * 2) << "the stranger goes after the sharers of its cohort, and before the rest";
  order.erase(order.begin() + place);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST(SchedulerPromises, runs_few_different_prompts_at_a_time_whatever_the_order_of_a_job) {
  constexpr int kPrompts = 16;
  constexpr int kOfEach = 8;
  constexpr std::int32_t kSlots = 32;
  testing::SchedulerDriver driver({.max_num_seqs = kSlots, .max_num_batched_tokens = 256}, {{.n_blocks = 2000}});
  std::vector<TokenId> firsts;
  for (int i = 0; i < kPrompts * kOfEach; ++i) firsts.push_back(100 * (i % kPrompts));
  std::ranges::shuffle(firsts, std::mt19937(1));
  for (const TokenId first : firsts) {
    std::vector<TokenId> prompt = prompt_of(40, first);
    prompt.push_back(5000 + static_cast<TokenId>(driver.next_id()));
    driver.add(make_sequence(driver.next_id(), prompt, 30));
  }
  std::int64_t n_prompts = 0;
  std::int64_t n_steps = 0;
  while (driver.scheduler.n_waiting() > 0) {
    driver.commit_awaited();
    std::set<TokenId> prompts;
    for (const PlannedSequence& planned : driver.plan().sequences)
      prompts.insert(driver.scheduler.find(planned.id)->schedule->tokens[0]);
    n_prompts += static_cast<std::int64_t>(prompts.size());
    ++n_steps;
    driver.commit_behind();
  }
  EXPECT_LT(static_cast<double>(n_prompts) / static_cast<double>(n_steps), 10.0) << "of 16; 32 slots hold 4 prompts of 8";
  driver.run_to_end(10'000);
}

TEST(SchedulerPromises, keeps_hashes_only_of_prompts_that_are_near_their_turn) {
  KvCache cache(400, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 2, .max_num_batched_tokens = 64}, cache);
  for (std::int64_t id = 0; id < 100; ++id) scheduler.add(make_sequence(id, prompt_of(40, static_cast<TokenId>(100 * id)), 20));
  scheduler.plan();
  std::int64_t n_hashed = 0;
  for (std::int64_t id = 0; id < 100; ++id) n_hashed += scheduler.find(SequenceId{id})->schedule->table.hashes.empty() ? 0 : 1;
  EXPECT_GT(n_hashed, 0);
  EXPECT_LE(n_hashed, kCohortTurns * 2) << "a cohort of two slots";
}

TEST(SchedulerPromises, keeps_priorities_apart_when_it_groups_by_prompt) {
  KvCache cache(2000, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 2, .max_num_batched_tokens = 64}, cache);
  const auto add = [&](std::int64_t id, std::int32_t priority, TokenId first) {
    std::vector<TokenId> prompt = prompt_of(16, first);
    prompt.push_back(5000 + static_cast<TokenId>(id));
    auto sequence = make_sequence(id, prompt, 1);
    SequenceEditor::task(*sequence).priority = priority;
    scheduler.add(std::move(sequence));
  };
  for (std::int64_t id = 0; id < 16; ++id) add(id, id < 8 ? 1 : 0, id % 2 == 0 ? 1 : 700);
  std::vector<std::int64_t> order;
  while (scheduler.n_waiting() > 0) {
    const StepPlan plan = scheduler.plan();
    for (const SequenceId id : plan.admitted) order.push_back(id.value);
    auto outcomes = give(plan, 7);
    for (StepOutcome& outcome : outcomes)
      if (!outcome.tokens.empty()) outcome.finished = FinishReason::length;
    scheduler.commit(plan, outcomes);
    scheduler.check_invariants();
  }
  ASSERT_EQ(order.size(), 16u);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_GE(order[i], 8) << "a lower priority was admitted before a higher one";
}

}  // namespace
}  // namespace baton
