/// How many drafts a model's own layer makes: as many as pay, by what steps and passes took.
#include "engine/request/draft_pace.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

/// A device on which a step takes `step` seconds and `row` more for each row, and a pass `pass` seconds.
struct SimulatedCosts {
  double step = 0;
  double row = 0;
  double pass = 0;
};

/// Runs steps of `n` sequences as the engine does. Returns how many of the last 256 had drafts, and the drafts of the last with some.
struct Ran {
  int n_drafting = 0;
  std::int32_t n_drafts = 0;
};
Ran run(const SimulatedCosts& costs, std::int32_t n, std::int32_t n_most, double acceptance) {
  DraftPace pace;
  RowCost rows;
  Ran ran;
  for (int step = 0; step < 1000; ++step) {
    const std::int32_t k = pace.n_drafts(n, n_most, acceptance, rows);
    rows.observe(n, n * (1 + k), costs.step + costs.row * n * (1 + k));
    if (k > 0) pace.observe(n, k, costs.pass * k);
    if (step < 744 || k == 0) continue;
    ++ran.n_drafting;
    ran.n_drafts = k;
  }
  return ran;
}

TEST(DraftPace, cheap_drafts_that_are_accepted_are_made_in_nearly_all_steps) {
  const Ran ran = run({.step = 1e-2, .row = 1e-6, .pass = 2e-4}, 8, 3, 0.8);
  EXPECT_GT(ran.n_drafting, 180);
  EXPECT_EQ(ran.n_drafts, 3);
}

TEST(DraftPace, drafts_that_are_never_accepted_are_tried_now_and_then) {
  const Ran ran = run({.step = 1e-2, .row = 1e-6, .pass = 2e-3}, 8, 3, 0.01);
  EXPECT_LT(ran.n_drafting, 100);
  EXPECT_GT(ran.n_drafting, 0);
}

TEST(DraftPace, a_pass_that_takes_as_long_as_a_step_does_not_pay) {
  EXPECT_LT(run({.step = 1e-3, .row = 1e-6, .pass = 1e-3}, 1, 3, 0.8).n_drafting, 100);
}

TEST(DraftPace, it_takes_the_number_of_drafts_that_pays) {
  const Ran ran = run({.step = 1e-2, .row = 1e-6, .pass = 2.5e-3}, 4, 4, 0.6);
  EXPECT_GT(ran.n_drafting, 150);
  EXPECT_EQ(ran.n_drafts, 2) << "1.6 tokens in 12.5 ms, 1.96 in 15 ms, 2.18 in 17.5 ms";
}

}  // namespace
}  // namespace baton
