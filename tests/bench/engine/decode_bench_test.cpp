/// The decode benchmark on a model small enough for a test: what each arm reads and its counts, not its times. Also
/// the shapes of bench/shapes.
#include "bench/engine/decode_bench.h"

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "bench/engine/decode_report.h"
#include "bench/report/machine_report.h"
#include "model/config.h"
#include "support/source_folder.h"
#include "support/tiny_shape.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

class DecodeBench : public ::testing::Test {
 protected:
  DecodeBench() {
    options_.shape = shape_.folder().string();
    options_.shared = {512};
    options_.n_new = 6;
    options_.n_runs = 2;
    options_.requests = {1, 4};
    options_.arms = {"relay", "paged", "unshared"};
    options_.model.threads = 1;
  }
  const test::TinyShape shape_{"decode_bench"};
  DecodeBenchOptions options_;
};

constexpr std::int64_t kTokenBytes = 2 * 2 * 4 * 64 * 4;  // K and V, layers, heads, head_dim, f32

/// 520 shared tokens have 32 full blocks; each run computes the other eight and its own.
TEST_F(DecodeBench, finds_shared_prompts_of_recurrent_models_up_to_their_snapshot) {
  options_.shape = (test::source_folder() / "tests/goldens/qwen3_next_tiny_heads").string();
  options_.shared = {520};
  options_.own = 20;
  const auto report = run_decode_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->runs.size(), 6u);
  EXPECT_GT(report->prefill_tokens_per_s, 0);
  EXPECT_GT(report->unshared_tokens_per_s, 0);
  for (const DecodeRun& run : report->runs) {
    EXPECT_EQ(run.tokens_per_s.size(), 2u);
    EXPECT_GT(run.step_ms, 0);
    EXPECT_EQ(run.kv_bytes_saved > 0, run.arm == "relay" && run.n_requests > 1) << run.arm << " " << run.n_requests;
  }
  const std::string text = decode_text(*report, options_, "the command");
  EXPECT_NE(text.find("Prompts are in the cache\nup to a snapshot of their states."), std::string::npos) << text;
}

TEST_F(DecodeBench, refuses_answers_that_end_before_a_recurrent_models_prompts) {
  options_.shape = (test::source_folder() / "tests/goldens/qwen3_next_tiny_heads").string();
  options_.shared = {40};
  options_.n_new = 1;
  for (const auto& [arm, whole] : {std::pair{"unshared", ""}, std::pair{"paged", " whole"}}) {
    options_.arms = {arm};
    const auto report = run_decode_bench(options_);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().message,
              std::string("answers of 1 tokens end before the prompts of 1 requests are computed, which "
                          "are not kept") +
                  whole + ": give --new more");
  }
}

TEST_F(DecodeBench, counts_what_each_arm_reads) {
  const auto report = run_decode_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->runs.size(), 6u);
  EXPECT_GT(report->prefill_tokens_per_s, 0);
  EXPECT_GT(report->unshared_tokens_per_s, 0);
  for (const DecodeRun& run : report->runs) {
    EXPECT_EQ(run.tokens_per_s.size(), 2u);
    EXPECT_GT(run.median(), 0);
    EXPECT_GT(run.step_ms, run.host_ms);
  }
  // Five steps are timed. In the first of them a context has 512 shared tokens, one of its own and one generated.
  std::int64_t own = 0;
  for (int step = 0; step < 5; ++step) own += 2 + step;
  const std::int64_t each = (5 * 512 + own) * kTokenBytes;
  const std::int64_t together = (5 * 512 + 4 * own) * kTokenBytes;
  std::map<std::pair<std::string, std::int32_t>, const DecodeRun*> runs;
  for (const DecodeRun& run : report->runs) runs[{run.arm, run.n_requests}] = &run;
  for (const std::string& arm : options_.arms) EXPECT_EQ((runs[{arm, 1}]->kv_bytes_requested), each) << arm;
  EXPECT_EQ((runs[{"relay", 4}]->kv_bytes_requested), together);
  EXPECT_EQ((runs[{"relay", 4}]->kv_bytes_saved), 4 * each - together);
  EXPECT_EQ((runs[{"paged", 4}]->kv_bytes_requested), 4 * each);
  EXPECT_EQ((runs[{"unshared", 4}]->kv_bytes_requested), 4 * each);
  EXPECT_EQ((runs[{"unshared", 4}]->kv_bytes_saved), 0);
}

/// Each prompt's steps read as many bytes as in a run of its own: the prompts before leave nothing that they share.
TEST_F(DecodeBench, runs_one_shared_prompt_after_another) {
  options_.shared = {64, 512, 128};
  options_.requests = {4};
  const auto report = run_decode_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->runs.size(), 9u);
  for (std::size_t i = 0; i < 3; ++i) {
    DecodeBenchOptions alone = options_;
    alone.shared = {options_.shared[i]};
    const auto expected = run_decode_bench(alone);
    ASSERT_TRUE(expected) << expected.error().message;
    for (std::size_t arm = 0; arm < 3; ++arm) {
      const DecodeRun& run = report->runs[3 * i + arm];
      EXPECT_EQ(run.n_shared, options_.shared[i]);
      EXPECT_EQ(run.arm, expected->runs[arm].arm);
      EXPECT_GT(run.prefill_tokens_per_s, 0);
      EXPECT_EQ(run.kv_bytes_requested, expected->runs[arm].kv_bytes_requested) << run.arm << " " << run.n_shared;
      EXPECT_EQ(run.kv_bytes_saved, expected->runs[arm].kv_bytes_saved) << run.arm << " " << run.n_shared;
    }
  }
  const std::string text = decode_text(*report, options_, "the command");
  for (const char* part : {"| shared | requests | arm |", "| 64 | 4 | relay | ", "| 128 | 4 | unshared | ",
                           "64, 512, 128 shared tokens", "Prefill of the last shared prompt"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  const json::Value written = decode_json(*report, options_, "the command");
  EXPECT_EQ(written["shared"], json::Value({64, 512, 128}));
  EXPECT_EQ(written["runs"][3]["shared"], 512);
  EXPECT_GT(written["runs"][3]["prefill_tokens_per_s"], 0);
}

TEST_F(DecodeBench, prefills_the_requests_own_prompts_before_the_clock_starts) {
  options_.shared = {0};
  options_.own = 100;
  options_.requests = {3};
  options_.arms = {"paged"};
  const auto report = run_decode_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->prefill_tokens_per_s, 0);
  std::int64_t n_tokens = 0;
  for (int step = 0; step < 5; ++step) n_tokens += 101 + step;
  EXPECT_EQ(report->runs[0].kv_bytes_requested, 3 * n_tokens * kTokenBytes);
}

TEST_F(DecodeBench, says_when_the_cache_does_not_hold_the_copies) {
  options_.requests = {4};
  options_.arms = {"unshared"};
  options_.model.kv_cache_bytes = 5 << 20;  // 1280 tokens; one copy is 528
  const auto report = run_decode_bench(options_);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().message,
            "the KV cache of 1280 tokens does not hold what 4 requests need in the unshared arm: give it more "
            "(--kv-cache-memory-bytes) or take fewer requests");
}

TEST_F(DecodeBench, prints_command_machine_and_each_arm) {
  options_.requests = {2};
  const auto report = run_decode_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  const std::string text = decode_text(*report, options_, "the command");
  EXPECT_TRUE(text.starts_with("the command\n" + machine_line(report->engine) + "\n")) << text;
  EXPECT_TRUE(machine_line(report->engine).starts_with("baton ")) << text;
  for (const char* part : {"1 thread (", "| 2 | relay | ", "| 2 | paged | ", "| 2 | unshared | ",
                           "512 shared tokens, 1 own, 6 new", "medians of 2 interleaved runs", ": 5 steps are timed"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  const json::Value written = decode_json(*report, options_, "the command");
  EXPECT_EQ(written["command"], "the command");
  EXPECT_EQ(written["weight_dtype"], "float32");
  EXPECT_EQ(written["runs"].size(), 3u);
  EXPECT_EQ(written["runs"][1]["arm"], "paged");
  EXPECT_EQ(written["runs"][1]["tokens_per_s"].size(), 2u);
}

TEST(Shapes, have_the_parameters_of_the_models_they_are_named_after) {
  const std::map<std::string, double> billions{
      {"110m", 0.1095},          {"tinyllama-1.1b", 1.100}, {"phi-2", 2.78},
      {"llama-2-7b", 6.738},     {"mistral-7b", 7.242},     {"llama-3-8b", 8.030},
      {"llama-2-13b", 13.016},   {"llama-30b", 32.529},     {"codellama-34b", 33.744},
      {"qwen3-8b", 8.191},       {"gemma-2-9b", 9.242},     {"qwen3-30b-a3b", 30.532},
      {"gpt-oss-20b", 20.915},   {"gpt-oss-120b", 116.829}, {"deepseek-v2-lite", 15.706},
      {"glm-4.7-flash", 29.943}, {"deepseek-v3", 26.618},   {"ministral-3-8b", 8.490},
      {"qwen3.5-4b", 4.206},     {"qwen3.5-27b", 26.896},   {"qwen3.5-35b-a3b", 34.661}};
  std::size_t n_found = 0;
  for (const auto& entry : fs::directory_iterator(test::source_folder() / "bench/shapes")) {
    if (!entry.is_directory()) continue;
    ++n_found;
    const std::string name = entry.path().filename().string();
    const auto config = read_model_spec(entry.path());
    ASSERT_TRUE(config) << config.error().message;
    ASSERT_TRUE(billions.contains(name)) << name;
    EXPECT_NEAR(static_cast<double>(config->n_parameters()) / 1e9, billions.at(name), 0.002 * billions.at(name)) << name;
    EXPECT_EQ(config->dtype, DType::bf16);
    EXPECT_GE(config->max_position, 8192);
  }
  EXPECT_EQ(n_found, billions.size());
}

}  // namespace
}  // namespace baton
