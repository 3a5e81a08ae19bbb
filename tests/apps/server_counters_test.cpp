/// Counters of a server, read from the text of its /metrics (apps/bench/server_counters.h).
#include "apps/bench/server_counters.h"

#include <limits>

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr std::string_view kPage =
    "# HELP baton:steps_total Steps of the engine.\n"
    "# TYPE baton:steps_total counter\n"
    "baton:steps_total{model_name=\"demo\",engine=\"0\"} 12\n"
    "vllm:generation_tokens_total{model_name=\"demo\",engine=\"0\"} 3e2\n"
    "baton:io_lock_wait_seconds_bucket{engine=\"0\",le=\"0.0001\"} 90\n"
    "baton:io_lock_wait_seconds_bucket{engine=\"0\",le=\"0.001\"} 99\n"
    "baton:io_lock_wait_seconds_bucket{engine=\"0\",le=\"+Inf\"} 100\n";

TEST(ServerCounters, are_read_by_name) {
  const ServerCounters counters = ServerCounters::of_page(kPage);
  EXPECT_EQ(counters.steps, 12);
  EXPECT_EQ(counters.tokens, 300);
  EXPECT_EQ(counters.n_gaps, 0);
  EXPECT_EQ(counters.io_waits, (std::vector<double>{90, 9, 1}));
  EXPECT_EQ(ServerCounters::of_page("").n_io_waits(), 0);
}

TEST(ServerCounters, tell_how_long_the_io_thread_waited) {
  const ServerCounters counters = ServerCounters::of_page(kPage);
  EXPECT_EQ(counters.n_io_waits(), 100);
  EXPECT_EQ(counters.io_wait_within_s(0.5), 0.0001);
  EXPECT_EQ(counters.io_wait_within_s(0.99), 0.001);
  EXPECT_EQ(counters.io_wait_within_s(0.999), std::numeric_limits<double>::infinity());
  ServerCounters before = counters;
  before.io_waits = {90, 9, 0};
  before.steps = 10;
  const ServerCounters added = counters.since(before);
  EXPECT_EQ(added.steps, 2);
  EXPECT_EQ(added.n_io_waits(), 1);
  EXPECT_EQ(ServerCounters().io_wait_within_s(0.999), 0);
}

}  // namespace
}  // namespace baton
