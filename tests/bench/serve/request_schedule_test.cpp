/// Arrival times of `baton bench serve` (bench/serve/request_schedule.h).
#include "bench/serve/request_schedule.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMany = 40'000;

std::vector<double> gaps_of(const std::vector<double>& times) {
  std::vector<double> gaps;
  for (std::size_t i = 0; i < times.size(); ++i) gaps.push_back(times[i] - (i == 0 ? 0 : times[i - 1]));
  return gaps;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

/// Standard deviation over mean: 1 / sqrt(burstiness) for gamma gaps.
double variation_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size())) / mean;
}

TEST(RequestSchedule, depends_on_the_seed_alone) {
  const ScheduleOptions options{.rate = 3};
  EXPECT_EQ(make_schedule(options, 5, 100), make_schedule(options, 5, 100));
  EXPECT_NE(make_schedule(options, 5, 100), make_schedule(options, 6, 100));
}

TEST(RequestSchedule, ends_after_n_requests_at_the_rate) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{7}, kMany})
    EXPECT_NEAR(make_schedule({.rate = 4}, 1, n).back(), static_cast<double>(n) / 4, 1e-6);
  EXPECT_TRUE(make_schedule({.rate = 4}, 1, 0).empty());
}

TEST(RequestSchedule, without_bursts_is_a_poisson_process) {
  const std::vector<double> gaps = gaps_of(make_schedule({.rate = 4}, 2, kMany));
  EXPECT_NEAR(variation_of(gaps), 1, 0.03);
  std::size_t n_long = 0;
  for (const double gap : gaps) n_long += gap > 0.25 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(n_long) / kMany, std::exp(-1), 0.01);
}

TEST(RequestSchedule, varies_as_the_burstiness_says) {
  for (const double burstiness : {0.25, 0.5, 4.0, 100.0}) {
    const auto gaps = gaps_of(make_schedule({.rate = 4, .burstiness = burstiness}, 3, kMany));
    EXPECT_NEAR(variation_of(gaps) * std::sqrt(burstiness), 1, 0.05) << burstiness;
    for (const double gap : gaps) ASSERT_GE(gap, 0);
  }
  for (const double gap : gaps_of(make_schedule({.rate = 4, .burstiness = kInfinity}, 3, 50))) EXPECT_NEAR(gap, 0.25, 1e-12);
}

TEST(RequestSchedule, of_an_infinite_rate_is_all_at_once) {
  EXPECT_EQ(make_schedule({}, 1, 3), (std::vector<double>{0, 0, 0}));
}

TEST(RequestSchedule, of_a_ramp_grows_from_request_to_request) {
  ScheduleOptions options{.burstiness = kInfinity, .ramp_up = "linear", .ramp_up_start = 1, .ramp_up_end = 9};
  const auto linear = gaps_of(make_schedule(options, 1, 5));
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(1 / linear[i], 1 + 2.0 * static_cast<double>(i), 1e-9);
  options.ramp_up = "exponential";
  options.ramp_up_end = 16;
  const auto exponential = gaps_of(make_schedule(options, 1, 5));
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(1 / exponential[i], std::pow(2, i), 1e-9);
  EXPECT_EQ(make_schedule(options, 1, 1).size(), 1U);
}

TEST(RequestSchedule, refuses_by_the_name_of_the_flag) {
  const auto refusal = [](const ScheduleOptions& options) {
    const auto checked = check_schedule(options);
    return checked ? std::string() : checked.error().message;
  };
  EXPECT_EQ(refusal({.rate = 4, .burstiness = kInfinity}), "");
  EXPECT_EQ(refusal({.rate = 0}), "--request-rate must be positive, not 0");
  EXPECT_EQ(refusal({.rate = std::nan("")}), "--request-rate must be positive, not nan");
  EXPECT_EQ(refusal({.burstiness = -1}), "--burstiness must be positive, not -1");
  EXPECT_EQ(refusal({.ramp_up = "steep"}), "--ramp-up-strategy must be linear or exponential, not 'steep'");
  EXPECT_NE(refusal({.ramp_up = "linear", .ramp_up_end = 4}).find("0 < --ramp-up-start-rps"), std::string::npos);
  EXPECT_NE(refusal({.rate = 4, .ramp_up = "linear", .ramp_up_start = 1, .ramp_up_end = 4}).find("--request-rate does not"),
            std::string::npos);
}

}  // namespace
}  // namespace baton
