/// Counters of a server, read from the text of its /metrics (bench/http/server_counters.h).
#include "bench/http/server_counters.h"

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

TEST(ServerCounters, of_the_prefix_cache_have_two_names_and_a_line_for_each_engine) {
  const ServerCounters counters = ServerCounters::of_page(
      "vllm:prefix_cache_queries_total{engine=\"0\"} 100\nvllm:prefix_cache_queries_total{engine=\"1\"} 50\n"
      "vllm:prefix_cache_hits_total{engine=\"0\"} 30\nvllm:prefix_cache_hits_total{engine=\"1\"} 0\n"
      "vllm:gpu_prefix_cache_hits_total{engine=\"0\"} 30\nbaton:kv_bytes_requested_total 5e9\n");
  EXPECT_EQ(counters.prefix_queries, 150);
  EXPECT_EQ(counters.prefix_hits, 30);
  EXPECT_EQ(counters.kv_bytes_requested, 5e9);
  EXPECT_FALSE(counters.kv_bytes_saved);
  EXPECT_EQ(ServerCounters::of_page("vllm:gpu_prefix_cache_hits_total{engine=\"0\"} 7\n").prefix_hits, 7);
  ServerCounters before = counters;
  before.prefix_hits = 10;
  EXPECT_EQ(counters.since(before).prefix_hits, 20);
  EXPECT_FALSE(counters.since(before).kv_bytes_saved);
  EXPECT_FALSE(ServerCounters::of_page(kPage).prefix_hits);
}

}  // namespace
}  // namespace baton
