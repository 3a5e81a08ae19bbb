/// The throughput benchmark on a model small enough for a test: its report, a model that does not fit, its flags.
#include "bench/offline/throughput_bench.h"

#include <algorithm>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "bench/offline/offline_bench.h"
#include "bench/offline/throughput_report.h"
#include "support/tiny_shape.h"

namespace baton {
namespace {

class ThroughputBench : public ::testing::Test {
 protected:
  ThroughputBench() {
    options_.shape = shape_.folder().string();
    options_.model.threads = 1;
    options_.model.max_num_seqs = 4;
    options_.model.max_num_batched_tokens = 256;
    options_.n_runs = 2;
    options_.dataset.num_prompts = 8;
    options_.dataset.prefix_len = 128;
    options_.dataset.random_input_len = 20;
    options_.dataset.random_output_len = 5;
  }
  const test::TinyShape shape_{"throughput_bench"};
  ThroughputBenchOptions options_;
};

TEST_F(ThroughputBench, reports_each_arm_under_the_keys_of_vllm_and_its_own) {
  options_.model.batch_invariant = true;
  options_.dataset.prefix_len = 512;  // this mode relays whole chunks of 256 tokens
  const auto report = run_throughput_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  const json::Value written = throughput_json(*report, options_, "the command");
  EXPECT_EQ(written["command"], "the command");
  for (const char* key : {"version", "device", "features", "model", "weight_dtype", "kv_dtype", "dataset", "seed"})
    EXPECT_TRUE(written.contains(key) && !written[key].is_null()) << key;
  EXPECT_EQ(written["max_num_seqs"], 4);
  EXPECT_EQ(written["max_num_batched_tokens"], 256);
  EXPECT_EQ(written["equal_answers"], true);
  EXPECT_EQ(written["num_equal_answers"], 8);
  ASSERT_EQ(written["arms"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const json::Value& arm = written["arms"][i];
    EXPECT_EQ(arm["arm"], options_.arms[i]);
    EXPECT_EQ(arm["cut"], false);
    EXPECT_EQ(arm["num_requests"], 8);
    EXPECT_EQ(arm["total_input_tokens"], 8 * 532);
    EXPECT_EQ(arm["total_output_tokens"], 8 * 5);
    EXPECT_EQ(arm["total_num_tokens"], 8 * 537);
    ASSERT_EQ(arm["elapsed_times"].size(), 2u);
    const double seconds = arm["elapsed_time"].get<double>();
    EXPECT_DOUBLE_EQ(seconds, (arm["elapsed_times"][0].get<double>() + arm["elapsed_times"][1].get<double>()) / 2);
    // Medians of rates and of times differ by no more than the spread.
    EXPECT_NEAR(arm["requests_per_second"].get<double>() * seconds / 8, 1, arm["spread"].get<double>() + 1e-9);
    EXPECT_NEAR(arm["tokens_per_second"].get<double>() / arm["requests_per_second"].get<double>(), 537, 1e-6);
    EXPECT_NEAR(arm["output_tokens_per_second"].get<double>() / arm["requests_per_second"].get<double>(), 5, 1e-6);
    EXPECT_NEAR(arm["prefix_hit_rate"].get<double>(), i == 2 ? 0 : 7.0 * 512 / (8 * 532), 1e-9);
    EXPECT_NEAR(arm["kv_bytes_per_token"].get<double>() * 40, arm["kv_bytes_requested"].get<double>(), 1);
    EXPECT_GT(arm["device_busy_share"].get<double>(), 0);
    EXPECT_LE(arm["device_busy_share"].get<double>(), 1);
    EXPECT_EQ(arm["preemptions"], 0);
  }
  EXPECT_LT(written["arms"][0]["kv_bytes_per_token"], written["arms"][1]["kv_bytes_per_token"]);
  EXPECT_GT(written["arms"][0]["kv_bytes_saved_per_token"], 0);
  EXPECT_LT(written["arms"][1]["kv_bytes_per_token"], written["arms"][2]["kv_bytes_per_token"]);
  EXPECT_EQ(written["arms"][2]["kv_bytes_saved_per_token"], 0);

  const std::string text = throughput_text(*report, options_, "the command");
  EXPECT_TRUE(text.starts_with("the command\nbaton ")) << text;
  for (const char* part :
       {"| relay | ", "| paged | ", "| unshared | ", "| 8 | 84% | ", "| 8 | 0% | ", "Equal answers in all arms: 8 of 8.",
        "at most 4 sequences and 256 tokens in a step", "seed 0", "medians of 2 interleaved runs"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  EXPECT_EQ(text.find("cut"), std::string::npos) << text;
}

TEST_F(ThroughputBench, begins_every_run_with_an_empty_cache) {
  options_.model.kv_cache_bytes = 8 << 20;  // 2048 tokens: prefixes are evicted and found again
  options_.dataset = {};
  options_.dataset.name = "prefix_repetition";
  options_.dataset.num_prompts = 60;
  options_.dataset.repetition_prefix_len = 256;
  options_.dataset.repetition_suffix_len = 16;
  options_.dataset.repetition_output_len = 4;
  options_.arms = {"relay", "paged"};
  options_.n_runs = 3;
  options_.n_warmups = 0;
  const auto report = run_throughput_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  const std::int64_t cached_tokens = report->arms[0].runs[0].cached_tokens;
  EXPECT_GT(cached_tokens, 0);
  EXPECT_LT(cached_tokens, 50 * 256) << "nothing was evicted";
  for (const ArmRuns& arm : report->arms)
    for (const OfflineResult& run : arm.runs) EXPECT_EQ(run.cached_tokens, cached_tokens) << arm.arm;
}

TEST_F(ThroughputBench, says_that_a_run_was_cut) {
  options_.arms = {"paged"};
  options_.dataset.random_output_len = 300;
  options_.n_runs = 1;
  options_.n_warmups = 0;
  options_.time_limit_s = 1e-6;
  const auto report = run_throughput_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  const json::Value written = throughput_json(*report, options_, "command");
  EXPECT_EQ(written["arms"][0]["cut"], true);
  EXPECT_EQ(written["arms"][0]["num_requests"], 0);
  EXPECT_EQ(written["arms"][0]["requests_per_second"], 0);
  EXPECT_EQ(written["equal_answers"], nullptr);
  const std::string text = throughput_text(*report, options_, "command");
  EXPECT_NE(text.find(" (cut) | 0 | "), std::string::npos) << text;
  EXPECT_NE(text.find("a run ended after 1e-06 s"), std::string::npos) << text;
}

TEST_F(ThroughputBench, has_a_model_that_does_not_fit_as_a_result) {
  options_.model.kv_cache_bytes = 64 << 10;  // 16 tokens of 4096 bytes
  const auto report = run_throughput_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  const json::Value written = throughput_json(*report, options_, "command");
  ASSERT_EQ(written["arms"].size(), 3u);
  EXPECT_EQ(written["arms"][1]["arm"], "paged");
  EXPECT_TRUE(written["arms"][1]["error"].get<std::string>().starts_with("the KV cache would hold 16 tokens"));
  EXPECT_EQ(written["arms"][1]["bytes_needed"], 153 * 4096);
  EXPECT_EQ(written["arms"][1]["bytes_available"], 64 << 10);
  EXPECT_EQ(written["equal_answers"], nullptr);
  EXPECT_FALSE(written["device"].is_null());
  const std::string text = throughput_text(*report, options_, "command");
  EXPECT_NE(text.find("| relay | the KV cache would hold 16 tokens"), std::string::npos) << text;
  EXPECT_NE(text.find("| 626688 | 65536 |"), std::string::npos) << text;
}

TEST_F(ThroughputBench, runs_conversations) {
  options_.dataset = {};
  options_.dataset.name = "multi-turn";
  options_.dataset.num_users = 3;
  options_.dataset.num_turns = 3;
  options_.dataset.shared_system_prompt = 64;
  options_.dataset.user_history_prompt = 32;
  options_.dataset.question_len = 10;
  options_.dataset.answer_len = 6;
  options_.arms = {"relay", "unshared"};
  const auto report = run_throughput_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  const OfflineResult& relay = report->arms[0].runs[1];
  EXPECT_EQ(relay.n_requests, 9);
  EXPECT_EQ(relay.output_tokens, 9 * 6);
  // Each turn sends all of its conversation so far.
  EXPECT_EQ(relay.prompt_tokens, 3 * (106 + 122 + 138));
  EXPECT_GT(relay.prefix_hit_rate(), 0.5);
  EXPECT_EQ(report->arms[1].runs[1].cached_tokens, 0);
}

TEST_F(ThroughputBench, refuses_what_no_arm_could_run) {
  options_.dataset.random_input_len = 5000;
  EXPECT_FALSE(run_throughput_bench(options_));
  options_.dataset.random_input_len = 20;
  options_.shape = "no such shape";
  EXPECT_EQ(run_throughput_bench(options_).error().code, ErrorCode::not_found);
}

TEST(ArmRuns, take_medians_of_rates) {
  ArmRuns arm{.arm = "paged", .runs = {}};
  for (const double seconds : {2.0, 1.0, 4.0}) {
    OfflineResult run;
    run.seconds = seconds;
    run.n_requests = 8;
    run.prompt_tokens = 80;
    run.output_tokens = 16;
    arm.runs.push_back(run);
  }
  EXPECT_DOUBLE_EQ(arm.seconds(), 2);
  EXPECT_DOUBLE_EQ(arm.requests_per_s(), 4);
  EXPECT_DOUBLE_EQ(arm.tokens_per_s(), 48);
  EXPECT_DOUBLE_EQ(arm.output_tokens_per_s(), 8);
  EXPECT_DOUBLE_EQ(arm.spread(), 1.5);  // from 2 to 8 a second
  EXPECT_FALSE(arm.is_cut());
  arm.runs[1].is_cut = true;
  EXPECT_TRUE(arm.is_cut());
  const std::vector<ArmRuns> arms{arm};
  EXPECT_EQ(find_arm(arms, "paged"), arms.data());
  EXPECT_EQ(find_arm(arms, "relay"), nullptr);
}

TEST(ThroughputBenchFlags, have_the_names_of_vllm) {
  ThroughputBenchOptions options;
  CLI::App app{"test"};
  add_throughput_bench_options(app, options);
  std::vector<std::string> words{"--shape",        "110m",    "--dataset-name", "prefix_repetition",
                                 "--num-prompts",  "7",       "--arms",         "relay,unshared",
                                 "--runs",         "5",       "--num-warmups",  "0",
                                 "--time-limit-s", "2.5",     "--seed",         "9",
                                 "--output-json",  "out.json"};
  std::reverse(words.begin(), words.end());
  app.parse(words);
  EXPECT_EQ(options.dataset.name, "prefix_repetition");
  EXPECT_EQ(options.dataset.num_prompts, 7);
  EXPECT_EQ(options.dataset.seed, 9u);
  EXPECT_EQ(options.arms, (std::vector<std::string>{"relay", "unshared"}));
  EXPECT_EQ(options.n_runs, 5);
  EXPECT_EQ(options.n_warmups, 0);
  EXPECT_EQ(options.time_limit_s, 2.5);
  EXPECT_EQ(options.json_file, "out.json");
  EXPECT_EQ(options.model.max_num_seqs, 256);
  EXPECT_EQ(options.model.max_num_batched_tokens, 16384);
  EXPECT_NE(app.help().find("baton bench throughput --shape llama-2-7b"), std::string::npos);
}

}  // namespace
}  // namespace baton
