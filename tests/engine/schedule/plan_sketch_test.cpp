/// PlanSketch: what a sequence took from a step is returned when the sequence is dropped.
#include "engine/schedule/plan_sketch.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/sequence_editor.h"

namespace baton {
namespace {

/// A sequence with a prompt of 40 tokens in slot `id`; its rows are scored.
Sequence scored_prompt(std::int64_t id) {
  SequenceTask task;
  task.id = SequenceId{id};
  task.request = RequestId{id};
  task.prompt_len = 40;
  task.max_len = 50;
  task.sampling.n_prompt_logprobs = 0;
  Sequence sequence(std::move(task), std::vector<TokenId>(40, 7));
  SequenceEditor::schedule(sequence).slot = SlotId{static_cast<std::int32_t>(id)};
  return sequence;
}

TEST(PlanSketch, gives_back_rows_and_scores_of_a_sequence_that_is_dropped) {
  PlanSketch sketch;
  sketch.budget = 100;
  sketch.max_scores = 60;
  Sequence first = scored_prompt(0);
  const Sequence second = scored_prompt(1);
  sketch.add(first, 40);
  EXPECT_EQ(sketch.n_rows_of(second, 0, 40), 21) << "39 rows of the first are scored";
  sketch.drop(second);
  EXPECT_EQ(sketch.plan.n_rows, 40) << "it had no rows";
  sketch.drop(first);
  EXPECT_EQ(sketch.plan.n_rows, 0);
  EXPECT_TRUE(sketch.members.empty());
  EXPECT_EQ(sketch.budget, 100);
  EXPECT_EQ(sketch.max_scores, 60);
  EXPECT_EQ(sketch.n_rows_of(second, 0, 40), 40);
}

TEST(PlanSketch, keeps_a_tenant_within_its_share_and_counts_what_it_took) {
  PlanSketch sketch;
  sketch.budget = 100;
  sketch.max_scores = 1000;
  Sequence prompt = scored_prompt(0);
  EXPECT_EQ(sketch.n_kept_from(prompt, 40, /*has_others=*/true), 0) << "it does not take all rows";
  EXPECT_EQ(sketch.n_kept_from(prompt, 400, /*has_others=*/true), 25);
  EXPECT_EQ(sketch.n_kept_from(prompt, 400, /*has_others=*/false), 0);
  sketch.limits.shares = {{0, 60}, {1, 40}};
  EXPECT_EQ(sketch.n_open_to(0), 60);
  EXPECT_EQ(sketch.n_kept_from(prompt, 400, /*has_others=*/false), 40);
  EXPECT_EQ(sketch.n_kept_from(prompt, 400, /*has_others=*/true), 40 + 15);
  sketch.add(prompt, 50);
  EXPECT_EQ(sketch.n_open_to(0), 10);
  EXPECT_EQ(sketch.n_open_to(1), 40);
}

}  // namespace
}  // namespace baton
