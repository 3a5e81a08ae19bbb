/// The attention benchmark on shapes small enough for a test: what it counts, not how fast it is.
#include "apps/bench/attention_bench.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(AttentionBench, has_the_lines_of_the_three_tables) {
  EXPECT_EQ(attention_bench_cases({"W1"}).size(), 10u);
  EXPECT_EQ(attention_bench_cases({"W2"}).size(), 8u);
  EXPECT_EQ(attention_bench_cases({"W3"}).size(), 24u);
  EXPECT_EQ(attention_bench_cases({"W1", "W2", "W3"}).size(), 42u);
  for (const AttentionBenchCase& line : attention_bench_cases({"W1"})) EXPECT_GE(line.n_requests * line.own_len, 65536);
}

TEST(AttentionBench, counts_what_each_arm_reads) {
  AttentionBenchOptions options;
  options.n_runs = 2;
  const AttentionBenchCase shared{"W2", 4, 4, 64, 8, 2048, 32};
  const AttentionBenchCase alone{"W1", 4, 2, 64, 2, 0, 100};
  const auto report = run_attention_bench(options, std::vector{shared, alone});
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->runs.size(), 2u);
  const AttentionBenchRun& run = report->runs[0];
  const std::int64_t token_bytes = 2 * 4 * 64 * 2;
  EXPECT_EQ(run.distinct_bytes, token_bytes * (2048 + 8 * 32));
  EXPECT_EQ(run.plain_bytes, token_bytes * 8 * (2048 + 32));
  EXPECT_EQ(run.flops, 4.0 * 4 * 64 * 8 * (2048 + 32));
  ASSERT_EQ(run.arms.size(), 2u);
  EXPECT_EQ(run.arms[0].arm, "paged");
  EXPECT_EQ(run.arms[0].kv_bytes, run.plain_bytes);
  EXPECT_EQ(run.arms[1].arm, "relay");
  EXPECT_EQ(run.arms[1].kv_bytes, run.distinct_bytes);
  for (const AttentionArmRun& arm : run.arms) {
    EXPECT_EQ(arm.us.size(), 2u);
    EXPECT_GT(arm.median_us(), 0);
  }
  EXPECT_EQ(report->runs[1].arms.size(), 1u);
  EXPECT_GT(report->read_bytes_per_us, 0);
}

TEST(AttentionBench, refuses_a_type_it_does_not_know) {
  AttentionBenchOptions options;
  options.kv_cache_dtype = "int3";
  const auto report = run_attention_bench(options, {});
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message.find("int3"), std::string::npos);
}

}  // namespace
}  // namespace baton
