/// Percentiles, goodput and peaks against values worked out by hand and by NumPy (bench/report/latency_statistics.h).
#include "bench/report/latency_statistics.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

RequestTimes request(double sent, double ttft, std::vector<double> gaps, std::int64_t output_len) {
  RequestTimes times{.is_complete = true, .prompt_len = 10, .output_len = output_len, .sent = sent, .ttft = ttft};
  times.e2e = ttft;
  for (const double gap : gaps) times.e2e += gap;
  times.gaps = std::move(gaps);
  return times;
}

TEST(LatencyStatistics, percentiles_are_linear_between_values_as_in_numpy) {
  const std::vector<double> values{4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(percentile_of(values, 0), 1);
  EXPECT_DOUBLE_EQ(percentile_of(values, 25), 1.75);
  EXPECT_DOUBLE_EQ(percentile_of(values, 50), 2.5);
  EXPECT_DOUBLE_EQ(percentile_of(values, 99), 3.97);
  EXPECT_DOUBLE_EQ(percentile_of(values, 100), 4);
  EXPECT_DOUBLE_EQ(percentile_of({7}, 99), 7);
  EXPECT_DOUBLE_EQ(percentile_of({}, 99), 0);
}

TEST(LatencyStatistics, distributions_have_the_deviation_of_the_values_themselves) {
  const std::vector<double> percents{25, 99};
  const LatencyDistribution made = distribution_of({4, 1, 3, 2}, percents);
  EXPECT_DOUBLE_EQ(made.mean, 2.5);
  EXPECT_DOUBLE_EQ(made.median, 2.5);
  EXPECT_NEAR(made.std, 1.118033988749895, 1e-15);
  ASSERT_EQ(made.percentiles.size(), 2U);
  EXPECT_DOUBLE_EQ(made.percentiles[0], 1.75);
  EXPECT_DOUBLE_EQ(made.percentiles[1], 3.97);
  EXPECT_EQ(distribution_of({}, percents).percentiles, (std::vector<double>{0, 0}));
}

TEST(LatencyStatistics, time_per_output_token_leaves_the_first_token_out) {
  EXPECT_DOUBLE_EQ(*request(0, 0.5, {0.1, 0.3}, 5).tpot(), 0.1);
  EXPECT_FALSE(request(0, 0.5, {}, 1).tpot());
}

TEST(LatencyStatistics, good_requests_meet_all_levels) {
  const RequestTimes times = request(0, 0.2, {0.05, 0.05}, 3);
  EXPECT_TRUE((ServiceLevels{.ttft_ms = 200, .tpot_ms = 51, .e2el_ms = 301}).are_met(times));
  EXPECT_FALSE((ServiceLevels{.ttft_ms = 199}).are_met(times));
  EXPECT_FALSE((ServiceLevels{.tpot_ms = 49}).are_met(times));
  EXPECT_FALSE((ServiceLevels{.e2el_ms = 299}).are_met(times));
  EXPECT_TRUE((ServiceLevels{.tpot_ms = 0}).are_met(request(0, 0.2, {}, 1)));
  EXPECT_FALSE(ServiceLevels{}.any());
}

TEST(LatencyStatistics, totals_count_complete_requests_only) {
  RequestTimes broken = request(0, 0.1, {0.1}, 2);
  broken.is_complete = false;
  const std::vector<RequestTimes> requests{broken, request(1, 0.5, {0.25, 0.25}, 3), request(1, 0.5, {3}, 2)};
  const LoadTotals totals = totals_of(requests, {.e2el_ms = 2000});
  EXPECT_EQ(totals.completed, 2);
  EXPECT_EQ(totals.prompt_tokens, 20);
  EXPECT_EQ(totals.output_tokens, 5);
  EXPECT_EQ(totals.good, 1);
  EXPECT_DOUBLE_EQ(totals.latency_per_token, (1.0 / 3 + 3.5 / 2) / 2);
}

TEST(LatencyStatistics, peaks_are_of_seconds_and_of_moments) {
  // Times from 10.5: the first request's chunks come at 0.25, 0.75, 1.25, the second's at 1.5, the third's at 1.75.
  const std::vector<RequestTimes> requests{request(10.5, 0.25, {0.5, 0.5}, 3), request(11.75, 0.25, {}, 1),
                                           request(11.75, 0.5, {}, 1)};
  const LoadTotals totals = totals_of(requests, {});
  EXPECT_EQ(totals.max_output_tokens_per_s, 3);
  EXPECT_EQ(totals.max_concurrent_requests, 2);  // the first ends when the others begin
  EXPECT_EQ(totals_of({}, {}).max_concurrent_requests, 0);
  EXPECT_EQ(totals_of({}, {}).max_output_tokens_per_s, 0);
}

}  // namespace
}  // namespace baton
