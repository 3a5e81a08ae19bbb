/// The benchmark of steps on a model small enough for a test: which steps it times, not how long they take.
#include "bench/engine/steps_bench.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/tiny_shape.h"

namespace baton {
namespace {

class StepsBench : public ::testing::Test {
 protected:
  StepsBench() {
    options_.shape = shape_.folder().string();
    options_.shared = 100;
    options_.own = 20;
    options_.requests = {0, 3};
    options_.prompt_tokens = {0, 40};
    options_.n_steps = 4;
    options_.model.threads = 1;
  }
  const test::TinyShape shape_{"steps_bench"};
  StepsBenchOptions options_;
};

TEST_F(StepsBench, times_every_size_with_exactly_its_rows) {
  for (const std::int32_t n_prompts : {1, 3}) {
    options_.n_prompts = n_prompts;
    const auto report = run_steps_bench(options_);
    ASSERT_TRUE(report) << report.error().message;
    ASSERT_EQ(report->costs.size(), 3u);
    const std::vector<std::pair<std::int32_t, std::int32_t>> sizes{{0, 40}, {3, 0}, {3, 40}};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(report->costs[i].n_decodes, sizes[i].first);
      EXPECT_EQ(report->costs[i].n_prompt_tokens, sizes[i].second);
      EXPECT_EQ(report->costs[i].seconds.size(), 4u);
    }
    const std::string text = steps_text(*report, options_, "the command");
    EXPECT_NE(text.find("| decodes | 0 prompt tokens, ms | 40 prompt tokens, ms |"), std::string::npos) << text;
    EXPECT_NE(text.find("| 0 | - |"), std::string::npos) << text;
    const json::Value numbers = steps_json(*report, options_, "the command");
    EXPECT_EQ(numbers["steps"].size(), 3u);
    EXPECT_EQ(numbers["steps"][2]["decodes"], 3);
    EXPECT_EQ(numbers["steps"][2]["prompt_tokens"], 40);
    EXPECT_GT(numbers["steps"][2]["median_seconds"], 0);
  }
}

TEST_F(StepsBench, refuses_fewer_prompt_tokens_than_prompts) {
  options_.n_prompts = 41;
  const auto report = run_steps_bench(options_);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().message, "--prompt-tokens 40: the 41 requests of --prompts have one each at least");
  options_.n_prompts = 1;
  options_.requests = {0};
  options_.prompt_tokens = {0};
  EXPECT_EQ(run_steps_bench(options_).error().message, "--requests 0 and --prompt-tokens 0: such a step has no rows");
  options_.requests = {8, 2, 8};
  EXPECT_EQ(run_steps_bench(options_).error().message, "--requests: 8 is there twice");
  options_.requests = {};
  EXPECT_EQ(run_steps_bench(options_).error().message, "at least one number of requests and one of prompt tokens are needed");
}

TEST_F(StepsBench, leaves_out_a_step_without_rows) {
  options_.requests = {0, 3};
  options_.prompt_tokens = {0};
  const auto report = run_steps_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->costs.size(), 1u);
  EXPECT_EQ(report->costs[0].n_decodes, 3);
  EXPECT_NE(steps_text(*report, options_, "the command").find("| 0 | - |"), std::string::npos);
}

TEST_F(StepsBench, looks_first_whether_its_file_can_be_written) {
  options_.requests = {};  // the measurement would be refused
  const auto errors_of = [&](const std::string& json_file) {
    options_.json_file = json_file;
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(steps_bench_main(options_, "the command"), 1);
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string file = ::testing::TempDir() + "steps_bench_absent/x.json";
  EXPECT_EQ(errors_of(file), "baton bench steps: --json: " + file + " does not exist\n");
  EXPECT_NE(errors_of(::testing::TempDir() + "steps_bench.json").find("at least one number of requests"), std::string::npos);
}

TEST_F(StepsBench, needs_the_prefix_cache) {
  options_.model.enable_prefix_caching = false;
  const auto report = run_steps_bench(options_);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().message, "it cannot be pinned: prefix caching is off");
}

}  // namespace
}  // namespace baton
