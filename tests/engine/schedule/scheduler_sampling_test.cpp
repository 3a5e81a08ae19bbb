/// Sampling in the scheduler: prompt rows that are scored, and the lists of a step.
#include <memory>

#include <gtest/gtest.h>

#include "engine/schedule/scheduler.h"
#include "support/sequence_editor.h"

namespace baton {
namespace {

std::unique_ptr<Sequence> scored_sequence(std::int64_t id, std::int32_t prompt_len, std::int32_t n_prompt_logprobs,
                                          TokenId first_token = 0) {
  SequenceTask task;
  task.id = SequenceId{id};
  task.request = RequestId{id};
  task.sampling.n_prompt_logprobs = n_prompt_logprobs;
  task.prompt_len = prompt_len;
  task.max_len = prompt_len + 5;
  std::vector<TokenId> prompt;
  for (std::int32_t i = 0; i < prompt_len; ++i) prompt.push_back(first_token + i);
  return std::make_unique<Sequence>(std::move(task), std::move(prompt));
}

/// Plans a step, marks its scores as enqueued as the engine does, and returns the rows of each sequence.
std::vector<std::int32_t> plan_rows(Scheduler& scheduler, std::int32_t& n_scores) {
  const StepPlan plan = scheduler.plan();
  std::vector<std::int32_t> rows;
  std::vector<StepOutcome> outcomes;
  n_scores = 0;
  for (const PlannedSequence& planned : plan.sequences) {
    Sequence& sequence = *scheduler.find(planned.id);
    const std::int32_t n = sequence.n_scores(planned.first_position, planned.n_rows);
    SequenceEditor::sampling(sequence).n_scored += n;
    n_scores += n;
    rows.push_back(planned.n_rows);
    outcomes.push_back({planned.id, {}, {}, {}});
    if (planned.max_tokens > 0) outcomes.back().tokens.push_back({7, {}, {}});
  }
  scheduler.commit(plan, outcomes);
  scheduler.check_invariants();
  return rows;
}

TEST(SchedulerSampling, a_step_takes_as_many_as_its_limit_for_all_sequences) {
  KvCache cache(100, 16, true);
  Scheduler scheduler({.max_num_seqs = 4, .max_num_batched_tokens = 64, .max_scores = 10}, cache);
  scheduler.add(scored_sequence(0, 25, 0));
  scheduler.add(scored_sequence(1, 25, 2, 100));
  scheduler.add(scored_sequence(2, 33, -1, 500));
  std::int32_t n_scores = 0;
  EXPECT_EQ(plan_rows(scheduler, n_scores), (std::vector<std::int32_t>{10}));
  EXPECT_EQ(n_scores, 10);
  EXPECT_EQ(plan_rows(scheduler, n_scores), (std::vector<std::int32_t>{10}));
  // Sequence 0 has four scores left; its last row scores nothing. 1 takes the other six, and 2 needs none.
  const std::vector<std::int32_t> third = plan_rows(scheduler, n_scores);
  ASSERT_EQ(third.size(), 3u);
  EXPECT_EQ(third[0], 5);
  EXPECT_EQ(third[1], 6);
  EXPECT_EQ(n_scores, 10);
}

TEST(SchedulerSampling, what_is_cached_is_computed_again_to_be_scored) {
  KvCache cache(100, 16, true);
  Scheduler scheduler({.max_num_seqs = 4, .max_num_batched_tokens = 64}, cache);
  scheduler.add(scored_sequence(0, 40, -1));
  std::int32_t n_scores = 0;
  plan_rows(scheduler, n_scores);
  scheduler.add(scored_sequence(1, 40, 0));
  const std::vector<std::int32_t> rows = plan_rows(scheduler, n_scores);
  EXPECT_EQ(rows, (std::vector<std::int32_t>{1, 40}));
  EXPECT_EQ(n_scores, 39);
  scheduler.add(scored_sequence(2, 40, -1));
  EXPECT_EQ(plan_rows(scheduler, n_scores), (std::vector<std::int32_t>{1, 1, 8}));
}

TEST(SchedulerSampling, a_sequence_waits_while_a_step_could_not_carry_its_lists) {
  KvCache cache(100, 16, true);
  Scheduler scheduler({.max_num_seqs = 4, .max_num_batched_tokens = 64, .max_list_entries = 70}, cache);
  for (std::int64_t id = 0; id < 4; ++id) {
    auto sequence = scored_sequence(id, 8, -1, static_cast<TokenId>(100 * id));
    SamplingParams& sampling = SequenceEditor::task(*sequence).sampling;
    if (id == 0) sampling.frequency_penalty = 1;                      // 5 tokens of its answer
    if (id == 1) sampling.repetition_penalty = 1.5F;                  // 13, with the prompt
    if (id == 2) sampling.allowed_ids = std::vector<TokenId>(60, 3);  // does not fit beside these
    scheduler.add(std::move(sequence));
  }
  std::int32_t n_scores = 0;
  EXPECT_EQ(plan_rows(scheduler, n_scores), (std::vector<std::int32_t>{8, 8}));
  scheduler.finish(SequenceId{1}, FinishReason::abort);
  EXPECT_EQ(plan_rows(scheduler, n_scores), (std::vector<std::int32_t>{1, 8, 8}));
}

TEST(SchedulerSampling, sequences_wait_while_a_step_could_not_list_their_blocks) {
  KvCache cache(100, 16, true);
  // Each sequence may reach 8 + 5 - 1 positions, so one block; 4 sequences fit the slots, 2 the step.
  Scheduler scheduler({.max_num_seqs = 4, .max_num_batched_tokens = 64, .max_block_entries = 2}, cache);
  for (std::int64_t id = 0; id < 4; ++id) scheduler.add(scored_sequence(id, 8, -1, static_cast<TokenId>(100 * id)));
  std::int32_t n_scores = 0;
  EXPECT_EQ(plan_rows(scheduler, n_scores), (std::vector<std::int32_t>{8, 8}));
  scheduler.check_invariants();
  scheduler.finish(SequenceId{0}, FinishReason::abort);
  EXPECT_EQ(plan_rows(scheduler, n_scores), (std::vector<std::int32_t>{1, 8}));
  scheduler.check_invariants();
}

TEST(SchedulerSamplingDeathTest, aborts_on_a_sequence_that_no_step_could_hold_alone) {
  KvCache cache(100, 16, true);
  Scheduler scheduler({.max_num_seqs = 4, .max_num_batched_tokens = 64, .max_list_entries = 7, .max_block_entries = 1}, cache);
  auto listed = scored_sequence(0, 8, -1);
  SequenceEditor::task(*listed).sampling.allowed_ids = std::vector<TokenId>(8, 3);
  EXPECT_DEATH(scheduler.add(std::move(listed)), "cannot hold the sequence alone");
  EXPECT_DEATH(scheduler.add(scored_sequence(0, 40, -1)), "cannot hold the sequence alone");
}

}  // namespace
}  // namespace baton
