/// Drafts in the scheduler: which sequences wait for a token in flight, and which continue meanwhile.
#include <deque>
#include <map>

#include <gtest/gtest.h>

#include "engine/schedule/scheduler.h"

namespace baton {
namespace {

constexpr std::int32_t kDraftedPromptLen = 12;

/// The token at a position of a text that repeats 1 2 3 or, if not `repeats`, of a text of the sequence's own without
/// repetition.
TokenId token_of(std::int64_t id, bool repeats, std::int32_t position) {
  return repeats ? 1 + position % 3 : 1000 * (1 + static_cast<TokenId>(id)) + position;
}

/// A sequence whose drafts are proposed and accepted, or one without repetition.
std::unique_ptr<Sequence> sequence_of(std::int64_t id, bool repeats, bool speculates) {
  SequenceTask task;
  task.id = SequenceId{id};
  task.request = RequestId{id};
  task.prompt_len = kDraftedPromptLen;
  task.max_len = 400;
  if (speculates) task.speculation = SpeculationOptions{.n_tokens = 4, .lookup_max = 3, .lookup_min = 2};
  std::vector<TokenId> prompt;
  for (std::int32_t i = 0; i < kDraftedPromptLen; ++i) prompt.push_back(token_of(id, repeats, i));
  return std::make_unique<Sequence>(std::move(task), std::move(prompt));
}

/// Runs steps as the engine does, planned one ahead. Each sequence continues its prompt's pattern.
class Steps {
 public:
  explicit Steps(bool drafters_wait_alone, bool uses_step_times = true)
      : cache_(200, 16, true),
        scheduler_({.max_num_seqs = 8,
                    .max_num_batched_tokens = 64,
                    .max_drafts = 16,
                    .drafters_wait_alone = drafters_wait_alone,
                    .uses_step_times = uses_step_times},
                   cache_) {}

  void add(std::unique_ptr<Sequence> sequence) { scheduler_.add(std::move(sequence)); }

  /// Plans `n` steps. Returns the rows of each sequence in each of them.
  std::vector<std::map<std::int64_t, std::int32_t>> run(int n) {
    std::vector<std::map<std::int64_t, std::int32_t>> rows;
    for (int i = 0; i < n; ++i) {
      if (!in_flight_.empty() && scheduler_.awaits_commit()) {
        ++n_awaited;
        commit();
      }
      const bool is_ahead = !in_flight_.empty();
      StepPlan plan = scheduler_.plan();
      scheduler_.check_invariants();
      rows.emplace_back();
      for (const PlannedSequence& planned : plan.sequences) rows.back()[planned.id.value] = planned.n_rows;
      in_flight_.push_back(std::move(plan));
      if (is_ahead) {
        ++n_ahead;
        commit();
      }
    }
    return rows;
  }

  int n_awaited = 0;          ///< plans for which the step in flight was committed first
  int n_ahead = 0;            ///< plans made with a step in flight
  double seconds_of_row = 0;  ///< what each row adds to a step's time; 0: no step's time is known

 private:
  void commit() {
    const StepPlan plan = std::move(in_flight_.front());
    in_flight_.pop_front();
    std::vector<StepOutcome> outcomes;
    for (const PlannedSequence& planned : plan.sequences) {
      StepOutcome outcome;
      outcome.id = planned.id;
      const Sequence& sequence = *scheduler_.find(planned.id);
      for (std::int32_t i = 0; i < planned.max_tokens; ++i) {
        const TokenId token =
            token_of(planned.id.value, /*repeats=*/sequence.schedule->tokens[0] == 1, sequence.n_tokens() + i);
        outcome.tokens.push_back({token, {}, {}});
      }
      for (std::size_t i = 0; i < planned.drafts.size(); ++i) EXPECT_EQ(planned.drafts[i], outcome.tokens[i].token);
      outcome.n_drafts = outcome.n_accepted = static_cast<std::int32_t>(planned.drafts.size());
      outcomes.push_back(std::move(outcome));
    }
    scheduler_.commit(plan, outcomes);
    if (seconds_of_row > 0) scheduler_.took(plan, seconds_of_row * plan.n_rows);
    scheduler_.check_invariants();
  }

  KvCache cache_;
  Scheduler scheduler_;
  std::deque<StepPlan> in_flight_;
};

TEST(SchedulerDrafts, a_sequence_that_drafts_waits_alone_and_the_other_has_a_row_in_every_step) {
  Steps steps(/*drafters_wait_alone=*/true);
  steps.add(sequence_of(0, true, true));
  steps.add(sequence_of(1, false, false));
  const auto rows = steps.run(12);
  EXPECT_EQ(steps.n_awaited, 0);
  EXPECT_EQ(steps.n_ahead, 11) << "two steps in flight, always";
  int n_with_drafts = 0;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at(1), 1) << "step " << i;
    n_with_drafts += rows[i].contains(0) && rows[i].at(0) == 5 ? 1 : 0;
    EXPECT_EQ(rows[i].contains(0), i % 2 == 0) << "step " << i;
  }
  EXPECT_EQ(n_with_drafts, 5);
}

TEST(SchedulerDrafts, all_wait_together_where_drafting_sequences_are_the_larger_part) {
  Steps steps(/*drafters_wait_alone=*/true);
  steps.add(sequence_of(0, true, true));
  steps.add(sequence_of(1, true, true));
  steps.add(sequence_of(2, false, false));
  const auto rows = steps.run(8);
  EXPECT_GE(steps.n_awaited, 6);
  for (std::size_t i = 2; i < rows.size(); ++i) EXPECT_EQ(rows[i].size(), 3u) << "step " << i;
}

TEST(SchedulerDrafts, all_wait_together_where_planning_ahead_gains_nothing) {
  Steps steps(/*drafters_wait_alone=*/false);
  steps.add(sequence_of(0, true, true));
  for (std::int64_t id = 1; id < 5; ++id) steps.add(sequence_of(id, false, false));
  const auto rows = steps.run(8);
  EXPECT_EQ(steps.n_awaited, 7);
  EXPECT_EQ(steps.n_ahead, 0);
  for (std::size_t i = 2; i < rows.size(); ++i) EXPECT_EQ(rows[i].size(), 5u) << "step " << i;
}

/// Steps with drafts among the last 40 of 60, whose time is all rows. The third sequence varies the number of rows.
int n_late_drafts(bool uses_step_times) {
  Steps steps(/*drafters_wait_alone=*/false, uses_step_times);
  steps.seconds_of_row = 1e-3;
  for (std::int64_t id = 0; id < 2; ++id) steps.add(sequence_of(id, true, true));
  steps.run(10);
  steps.add(sequence_of(2, true, true));
  steps.run(10);
  int n = 0;
  for (const auto& rows : steps.run(40)) n += rows.at(0) + rows.at(1) + rows.at(2) > 3 ? 1 : 0;
  return n;
}

TEST(SchedulerDrafts, end_where_measured_times_say_that_rows_are_expensive) {
  EXPECT_LE(n_late_drafts(/*uses_step_times=*/true), 1);
  EXPECT_EQ(n_late_drafts(/*uses_step_times=*/false), 40);
}

TEST(SchedulerDrafts, no_sequence_waits_for_drafts_that_nothing_promises) {
  Steps steps(/*drafters_wait_alone=*/true);
  for (std::int64_t id = 0; id < 3; ++id) steps.add(sequence_of(id, false, true));
  const auto rows = steps.run(8);
  EXPECT_EQ(steps.n_awaited, 0);
  EXPECT_EQ(steps.n_ahead, 7);
  for (std::size_t i = 1; i < rows.size(); ++i) EXPECT_EQ(rows[i].size(), 3u) << "step " << i;
}

}  // namespace
}  // namespace baton
