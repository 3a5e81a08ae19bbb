/// The latency benchmark on a model small enough for a test: its report, averages and percentiles, its flags.
#include "bench/offline/latency_bench.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "bench/offline/offline_report.h"
#include "support/source_folder.h"
#include "support/tiny_shape.h"

namespace baton {
namespace {

class LatencyBench : public ::testing::Test {
 protected:
  LatencyBench() {
    options_.shape = shape_.folder().string();
    options_.model.threads = 1;
    options_.model.max_num_batched_tokens = 256;
    options_.input_len = 8;
    options_.output_len = 6;
    options_.batch_size = 3;
    options_.n_iters_warmup = 1;
    options_.n_iters = 2;
  }
  const test::TinyShape shape_{"latency_bench"};
  LatencyBenchOptions options_;
};

TEST_F(LatencyBench, times_the_batches_of_each_arm) {
  const auto report = run_latency_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  const json::Value written = latency_json(*report, options_, "the command");
  EXPECT_EQ(written["command"], "the command");
  EXPECT_EQ(written["batch_size"], 3);
  EXPECT_EQ(written["input_len"], 8);
  ASSERT_EQ(written["arms"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(written["arms"][i]["arm"], options_.arms[i]);
    ASSERT_EQ(written["arms"][i]["latencies"].size(), 2u);
    EXPECT_GT(written["arms"][i]["latencies"][0], 0);
  }
  const std::string text = latency_text(*report, options_, "the command");
  EXPECT_TRUE(text.starts_with("the command\nbaton ")) << text;
  for (const char* part : {"| relay | ", "| unshared | ", "batches of 3: 8 tokens in, 6 out, behind a system prompt of 0",
                           "of 2 iterations after 1 warm-ups"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

/// A batch of 3 requests after 512 tokens takes several times as long if each computes them: 1536 tokens and not 24.
TEST_F(LatencyBench, finds_the_system_prompt_in_the_cache_where_it_is_shared) {
  options_.prefix_len = 512;
  const auto report = run_latency_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  const double paged = *std::ranges::min_element(report->arms[1].seconds);
  const double unshared = *std::ranges::min_element(report->arms[2].seconds);
  EXPECT_GT(unshared, 2 * paged);
}

TEST_F(LatencyBench, registers_the_system_prompt_of_a_recurrent_model) {
  options_.shape = (test::source_folder() / "tests/goldens/qwen3_next_tiny_heads").string();
  options_.prefix_len = 100;
  const auto report = run_latency_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->arms.size(), 3u);
  options_.model.snapshot_bytes = 0;
  const auto refused = run_latency_bench(options_);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.starts_with("a prefix of 100 tokens cannot be pinned")) << refused.error().message;
  options_.arms = {"unshared"};
  EXPECT_TRUE(run_latency_bench(options_));
}

TEST_F(LatencyBench, has_a_model_that_does_not_fit_as_a_result) {
  options_.model.kv_cache_bytes = 1 << 10;
  const auto report = run_latency_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  const json::Value written = latency_json(*report, options_, "command");
  ASSERT_EQ(written["arms"].size(), 3u);
  EXPECT_EQ(written["arms"][0]["bytes_needed"], 14 * 4096);
  EXPECT_EQ(written["arms"][0]["bytes_available"], 1 << 10);
  EXPECT_NE(latency_text(*report, options_, "command").find("| relay | the KV cache would hold "), std::string::npos);
}

TEST(LatencyReport, has_the_average_and_the_percentiles_of_vllm) {
  LatencyReport report;
  report.engine = EngineInfo();
  report.arms.push_back({"paged", {0.5, 0.1, 0.4, 0.2, 0.3}});
  const json::Value arm = latency_json(report, {}, "command")["arms"][0];
  EXPECT_NEAR(arm["avg_latency"].get<double>(), 0.3, 1e-12);
  const std::pair<const char*, double> expected[] = {{"10", 0.14}, {"25", 0.2},  {"50", 0.3},
                                                     {"75", 0.4},  {"90", 0.46}, {"99", 0.496}};
  for (const auto& [percent, seconds] : expected)
    EXPECT_NEAR(arm["percentiles"][percent].get<double>(), seconds, 1e-12) << percent;
  EXPECT_NE(
      latency_text(report, {}, "command").find("| paged | 0.3000 | 0.1400 | 0.2000 | 0.3000 | 0.4000 | 0.4600 | 0.4960 |"),
      std::string::npos);
}

TEST(LatencyBenchFlags, have_the_names_of_vllm) {
  LatencyBenchOptions options;
  CLI::App app{"test"};
  add_latency_bench_options(app, options);
  std::vector<std::string> words{"--input-len",        "7", "--output-len", "9", "--batch-size", "5",    "--prefix-len", "64",
                                 "--num-iters-warmup", "0", "--num-iters",  "2", "--arms",       "paged"};
  std::reverse(words.begin(), words.end());
  app.parse(words);
  EXPECT_EQ(options.input_len, 7);
  EXPECT_EQ(options.output_len, 9);
  EXPECT_EQ(options.batch_size, 5);
  EXPECT_EQ(options.prefix_len, 64);
  EXPECT_EQ(options.n_iters_warmup, 0);
  EXPECT_EQ(options.n_iters, 2);
  EXPECT_EQ(options.arms, std::vector<std::string>{"paged"});
}

}  // namespace
}  // namespace baton
