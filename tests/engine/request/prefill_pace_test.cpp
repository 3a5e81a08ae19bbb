/// How many prompt rows a step has: what is learnt from the times of steps, and what is chosen.
#include "engine/request/prefill_pace.h"

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

/// Seconds that so many prompt rows add to a step of 5 ms and 10 us a decode.
using Added = std::function<double(std::int32_t)>;

double seconds_of(std::int32_t n_decodes, std::int32_t n_rows, const Added& added) {
  return 5e-3 + 1e-5 * n_decodes + (n_rows > 0 ? added(n_rows) : 0);
}

/// Shows it steps of 60 to 70 decodes with all numbers of prompt rows up to 1000.
PrefillPace taught(const Added& added) {
  PrefillPace pace;
  std::mt19937 rng(1);
  for (int i = 0; i < 2000; ++i) {
    const auto n_decodes = static_cast<std::int32_t>(60 + rng() % 11);
    const auto n_rows = static_cast<std::int32_t>(rng() % 2 * (16 + rng() % 985));
    pace.observe(n_decodes, n_rows, seconds_of(n_decodes, n_rows, added));
  }
  return pace;
}

/// What steps with so many waiting rows have, but for the tries.
std::int32_t usual(PrefillPace& pace, std::int32_t n_waiting, std::int32_t n_most = 2000) {
  std::vector<std::int32_t> chosen;
  for (int i = 0; i < 5; ++i) chosen.push_back(pace.n_rows(65, n_waiting, n_most));
  std::ranges::sort(chosen);
  return chosen[2];
}

TEST(RowCurve, is_linear_between_places_and_constant_beyond_them) {
  RowCurve curve;
  EXPECT_FALSE(curve.at(10));
  curve.observe(8, 2.0);
  EXPECT_EQ(curve.at(1), 2.0);
  EXPECT_EQ(curve.at(1000), 2.0);
  curve.observe(16, 6.0);
  EXPECT_DOUBLE_EQ(*curve.at(12), 4.0);
  EXPECT_DOUBLE_EQ(*curve.at(40), 6.0);
  EXPECT_DOUBLE_EQ(*curve.at(3), 2.0);
}

TEST(RowCurve, follows_changes_and_cuts_single_late_steps) {
  RowCurve curve;
  for (int i = 0; i < 100; ++i) curve.observe(100, 1.0);
  curve.observe(100, 1000.0);
  EXPECT_LT(*curve.at(100), 1.2);
  for (int i = 0; i < 100; ++i) curve.observe(100, 2.0);
  EXPECT_NEAR(*curve.at(100), 2.0, 0.05);
  EXPECT_GT(RowCurve::rows_at(RowCurve::kPlaces - 1), 32768) << "more rows than any step has";
}

TEST(PrefillPace, learns_what_a_prompt_row_adds) {
  const Added added = [](std::int32_t n) { return 2e-5 * n; };
  const PrefillPace pace = taught(added);
  for (const std::int32_t n : {16, 50, 100, 333, 900}) EXPECT_NEAR(*pace.added_seconds(65, n), added(n), 0.1 * added(n)) << n;
  EXPECT_FALSE(pace.added_seconds(3, 100)) << "batches of that size were not seen";
  EXPECT_EQ(pace.added_seconds(65, 0), 0);
}

TEST(PrefillPace, gives_a_step_all_rows_while_it_knows_no_costs) {
  PrefillPace pace;
  EXPECT_EQ(usual(pace, 500), 2000);
  EXPECT_EQ(usual(pace, 500, 300), 300);
  pace.observe(65, 100, 1.0);  // without a step of decodes alone it says nothing
  EXPECT_EQ(usual(pace, 500), 2000);
}

TEST(PrefillPace, gives_a_step_all_rows_where_fewer_are_not_cheaper) {
  for (const Added& added :
       {Added([](std::int32_t n) { return 2e-5 * n; }), Added([](std::int32_t n) { return 2e-3 + 2e-5 * n; })}) {
    PrefillPace pace = taught(added);
    EXPECT_EQ(usual(pace, 250), 2000);
    EXPECT_EQ(usual(pace, 900, 1500), 1500);
  }
}

/// 96 rows are nearly free, and 20 us each beyond them.
double half_free(std::int32_t n) { return 2e-4 + 1e-6 * n + 2e-5 * std::max(0, n - 96); }

TEST(PrefillPace, takes_the_rows_that_a_step_has_nearly_free) {
  PrefillPace pace = taught(half_free);
  EXPECT_NEAR(usual(pace, 250), 96, 32);
  EXPECT_NEAR(usual(pace, 350), 96, 32);
  EXPECT_EQ(usual(pace, 40), 2000) << "all that waits is among them";
}

TEST(PrefillPace, computes_what_waits_within_a_few_steps) {
  PrefillPace pace = taught(half_free);
  EXPECT_EQ(usual(pace, 1600), 400);
  EXPECT_EQ(usual(pace, 16000), 2000);
  EXPECT_EQ(usual(pace, 16000, 512), 512);
}

TEST(PrefillPace, tries_fewer_rows_now_and_then) {
  PrefillPace pace;
  int n_tries = 0;
  for (int i = 0; i < 6 * PrefillPace::kTrySteps; ++i) {
    const std::int32_t n_rows = pace.n_rows(65, 400, 2000);
    if (n_rows == 2000) continue;
    ++n_tries;
    EXPECT_TRUE(n_rows == 200 || n_rows == 100 || n_rows == 50) << n_rows;
  }
  EXPECT_EQ(n_tries, 6);
}

TEST(PrefillPace, expects_of_waiting_sequences_what_admitted_ones_had) {
  PrefillPace pace;
  EXPECT_EQ(pace.rows_of_waiting(), 0);
  pace.admitted(100);
  EXPECT_EQ(pace.rows_of_waiting(), 100);
  for (int i = 0; i < 200; ++i) pace.admitted(20);
  EXPECT_NEAR(pace.rows_of_waiting(), 20, 1);
}

}  // namespace
}  // namespace baton
