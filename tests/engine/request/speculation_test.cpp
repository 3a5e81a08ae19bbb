/// When drafting pays: pauses, probabilities, and the cost of rows.
#include "engine/request/speculation.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Speculation, refuses_options_out_of_range) {
  const auto message_of = [](SpeculationOptions options) {
    const auto checked = check_speculation(options);
    EXPECT_FALSE(checked);
    EXPECT_EQ(checked.error().param, "speculative_config");
    return checked.error().message;
  };
  EXPECT_TRUE(check_speculation({}));
  EXPECT_TRUE(check_speculation({.n_tokens = kMaxDraftTokens, .lookup_max = kMaxLookupLen, .lookup_min = 1}));
  EXPECT_NE(message_of({.n_tokens = -1}).find("num_speculative_tokens"), std::string::npos);
  EXPECT_NE(message_of({.n_tokens = kMaxDraftTokens + 1}).find("16"), std::string::npos);
  EXPECT_NE(message_of({.n_tokens = 1, .lookup_max = 3, .lookup_min = 4}).find("in order"), std::string::npos);
  EXPECT_NE(message_of({.n_tokens = 1, .lookup_max = 3, .lookup_min = 0}).find("prompt_lookup_min"), std::string::npos);
  EXPECT_NE(message_of({.n_tokens = 1, .lookup_max = 65, .lookup_min = 1}).find("64"), std::string::npos);
}

TEST(Speculation, pauses_longer_after_each_draft_in_vain_and_not_after_one_that_came_true) {
  Speculation speculation({.n_tokens = 4});
  EXPECT_TRUE(speculation.is_active(10));
  speculation.verified(4, 0, 11);
  EXPECT_FALSE(speculation.is_active(12));
  EXPECT_TRUE(speculation.is_active(13));
  speculation.verified(4, 0, 14);
  EXPECT_FALSE(speculation.is_active(17));
  EXPECT_TRUE(speculation.is_active(18));
  for (int i = 0; i < 20; ++i) speculation.verified(4, 0, 100);
  EXPECT_FALSE(speculation.is_active(163));
  EXPECT_TRUE(speculation.is_active(164)) << "no pause is for ever";
  speculation.verified(4, 1, 166);
  speculation.verified(4, 0, 167);
  EXPECT_TRUE(speculation.is_active(169)) << "the first pause again";
}

TEST(Speculation, drafts_more_the_more_came_true) {
  Speculation good({.n_tokens = 8});
  Speculation bad({.n_tokens = 8});
  for (int i = 0; i < 10; ++i) {
    good.verified(8, 8, 0);
    bad.verified(8, 0, 0);
  }
  EXPECT_EQ(good.n_worthwhile(0.5), 8);
  EXPECT_EQ(bad.n_worthwhile(0.5), 0);
  EXPECT_EQ(bad.n_worthwhile(0), 8) << "where a row costs nothing, all are worth it";
  for (int i = 0; i < 300; ++i) bad.n_worthwhile(0.5);
  EXPECT_GT(bad.n_worthwhile(0.5), 0) << "what was learnt is forgotten in time";
}

TEST(Speculation, is_worth_a_step_where_a_repetition_continues_and_drafts_were_accepted) {
  Speculation speculation({.n_tokens = 4, .lookup_max = 3, .lookup_min = 2});
  const std::vector<TokenId> repeats{1, 2, 3, 1, 2, 3, 1, 2};
  EXPECT_TRUE(speculation.promises(repeats));
  EXPECT_TRUE(speculation.is_worth_a_step(repeats)) << "untried drafts are taken to be good";
  for (int i = 0; i < 5; ++i) speculation.verified(4, 0, 8);
  EXPECT_TRUE(speculation.promises(repeats));
  EXPECT_FALSE(speculation.is_worth_a_step(repeats)) << "a step brings one token, and these drafts fewer";
  int n_steps = 0;
  while (!speculation.is_worth_a_step(repeats) && n_steps < 1000) ++n_steps;
  EXPECT_GT(n_steps, 10);
  EXPECT_LT(n_steps, 200) << "in time it is tried again";

  Speculation alone({.n_tokens = 1, .lookup_max = 3, .lookup_min = 2});
  EXPECT_TRUE(alone.promises(repeats));
  EXPECT_FALSE(alone.is_worth_a_step(repeats)) << "one draft brings no more than a step";
  Speculation other({.n_tokens = 4, .lookup_max = 3, .lookup_min = 2});
  EXPECT_FALSE(other.promises(std::vector<TokenId>{1, 2, 3, 4, 5}));
  EXPECT_FALSE(other.is_worth_a_step(std::vector<TokenId>{1, 2, 3, 4, 5}));
}

TEST(RowCost, tells_when_drafts_may_pay) {
  RowCost cost;
  EXPECT_TRUE(cost.may_pay(4, 4)) << "nothing is known";
  for (int i = 0; i < 50; ++i) {
    cost.observe(4, 4, 1.0);
    cost.observe(4, 12, 1.0);
    cost.observe(40, 40, 1.0);
    cost.observe(40, 80, 2.0);
  }
  EXPECT_TRUE(cost.may_pay(4, 4)) << "rows cost nothing";
  int n = 0;
  while (!cost.may_pay(40, 40) && n < 1000) ++n;
  EXPECT_GT(n, 30) << "a row costs all that it brings";
  EXPECT_LT(n, 100) << "it is tried again";
}

TEST(RowCost, allows_all_drafts_where_rows_cost_nothing) {
  RowCost cost;
  for (int i = 0; i < 100; ++i) cost.observe(8, 8 + i % 9, 0.010);
  const auto allowance = cost.allow(8, 8);
  EXPECT_LT(allowance.least_probability, 0.01);
  EXPECT_GT(allowance.n_drafts, 100);
}

TEST(RowCost, asks_for_what_a_row_costs) {
  RowCost cost;
  for (int i = 0; i < 100; ++i) {  // half of the time of a step with 32 rows is for its rows
    const int n_rows = 32 + i % 17;
    cost.observe(32, n_rows, 0.010 + 0.010 / 32 * n_rows);
  }
  EXPECT_NEAR(cost.allow(32, 32).least_probability, 0.5 * 1.15, 0.02);
}

TEST(RowCost, allows_none_where_a_step_is_all_rows_and_tries_again_rarely) {
  RowCost cost;
  for (int i = 0; i < 100; ++i) cost.observe(32, 32 + i % 17, 0.001 * (32 + i % 17));
  int n_tries = 0;
  for (int i = 0; i < 640; ++i) {
    const auto allowance = cost.allow(32, 32);
    EXPECT_LE(allowance.n_drafts, 8);
    n_tries += allowance.n_drafts > 0 ? 1 : 0;
  }
  EXPECT_EQ(n_tries, 10);
  EXPECT_EQ(cost.allow(4, 4).least_probability, 0) << "other sizes of batches are learnt apart";
}

TEST(RowCost, learns_again_when_the_costs_change) {
  RowCost cost;
  for (int i = 0; i < 500; ++i) cost.observe(4, 4 + i % 5, 0.001 * (4 + i % 5));
  EXPECT_EQ(cost.allow(4, 4).n_drafts, 0);
  for (int i = 0; i < 500; ++i) cost.observe(4, 4 + i % 5, 0.020);
  EXPECT_LT(cost.allow(4, 4).least_probability, 0.1);
}

TEST(RowCost, one_slow_step_does_not_decide) {
  RowCost cost;
  for (int i = 0; i < 50; ++i) cost.observe(16, 16 + i % 9, 0.010);
  cost.observe(16, 24, 10);  // the machine was busy
  EXPECT_LT(cost.allow(16, 16).least_probability, 0.5);
}

}  // namespace
}  // namespace baton
