/// A coin decides which drafts are accepted, and no draft is accepted by chance besides.
#include "engine/step/simulated_acceptance.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

/// A sequence with three drafts, and one with none.
struct TwoSequences {
  TwoSequences() {
    step.drafts_of_sample = {{}, std::span(drafts).first(1), std::span(drafts).first(2), std::span(drafts).first(3), {}};
    results.resize(5);
    for (std::size_t i = 0; i < results.size(); ++i) results[i].token = static_cast<TokenId>(10 + i);  // the first is right
  }
  std::array<TokenId, 3> drafts{10, 21, 22};
  BuiltStep step;
  std::vector<SampleResult> results;
};

TEST(SimulatedAcceptance, with_probability_1_the_results_are_the_drafts) {
  const TwoSequences two;
  SimulatedAcceptance always(1, 160);
  const auto changed = always.apply(two.step, two.results);
  ASSERT_EQ(changed.size(), 5u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(changed[i].token, two.drafts[i]);
  EXPECT_EQ(changed[3].token, 13) << "no draft follows it";
  EXPECT_EQ(changed[4].token, 14);
}

TEST(SimulatedAcceptance, with_probability_0_no_result_is_its_draft) {
  const TwoSequences two;
  SimulatedAcceptance never(0, 160);
  const auto changed = never.apply(two.step, two.results);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NE(changed[i].token, two.drafts[i]);
  EXPECT_EQ(changed[1].token, two.results[1].token);
}

TEST(SimulatedAcceptance, the_share_is_the_probability_and_the_coins_are_the_same_in_each_run) {
  const TwoSequences two;
  SimulatedAcceptance first(0.8, 160);
  SimulatedAcceptance second(0.8, 160);
  int n_accepted = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto changed = first.apply(two.step, two.results);
    const auto same = second.apply(two.step, two.results);
    EXPECT_EQ(changed[0].token, same[0].token);
    n_accepted += changed[0].token == two.drafts[0] ? 1 : 0;
  }
  EXPECT_NEAR(n_accepted, 1600, 60);
}

}  // namespace
}  // namespace baton
