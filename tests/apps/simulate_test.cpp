/// `baton simulate` from its command line to its numbers, and the real trace of BATON_TEST_DATA.
#include "apps/programs.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "io/file.h"
#include "io/json.h"
#include "load/trace.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

class Simulate : public ::testing::Test {
 protected:
  Simulate() : folder_(fs::temp_directory_path() / ("baton_simulate_test." + std::to_string(::getpid()))) {
    fs::create_directory(folder_);
  }
  ~Simulate() override { fs::remove_all(folder_); }

  /// The exit code of `baton simulate TRACE --json ... WORDS`; -1 if the words cannot be parsed.
  int run(const std::string& trace, std::vector<std::string> words) {
    EXPECT_TRUE(write_file(folder_ / "trace", trace));
    CLI::App app;
    SimulateOptions options;
    add_simulate_options(app, options);
    words.insert(words.begin(), {(folder_ / "trace").string(), "--json", (folder_ / "json").string()});
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    try {
      app.parse(reversed);
    } catch (const CLI::ParseError&) {
      return -1;
    }
    return simulate_main(options, "baton simulate");
  }
  json::Value numbers() const {
    auto value = json::parse_file(folder_ / "json");
    EXPECT_TRUE(value);
    return value ? *value : json::Value();
  }
  const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
};

constexpr const char* kTwoTurns =
    "{\"timestamp\": 0, \"input_length\": 1024, \"output_length\": 9, \"hash_ids\": [1, 2]}\n"
    "{\"timestamp\": 60000, \"input_length\": 1300, \"output_length\": 1, \"hash_ids\": [1, 2, 3]}\n";

TEST_F(Simulate, reports_what_a_trace_finds_in_the_cache) {
  ASSERT_EQ(run(kTwoTurns, {}), 0);
  const json::Value report = numbers();
  EXPECT_EQ(report["requests"], 2);
  EXPECT_EQ(report["prompt_tokens"], 2324);
  EXPECT_EQ(report["cached_tokens"], 1024);
  EXPECT_EQ(report["trace_blocks"], 5);
  EXPECT_EQ(report["cached_trace_blocks"], 2);
  EXPECT_EQ(report["output_tokens"], 10);
  EXPECT_EQ(report["preemptions"], 0);
  EXPECT_GT(report["simulated_s"].get<double>(), 60);
}

TEST_F(Simulate, looks_first_whether_its_file_can_be_written) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run(kTwoTurns, {"--json", (folder() / "absent" / "json").string()}), 1);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "") << "it fails before the replay";
}

TEST_F(Simulate, takes_measured_times_of_steps) {
  const std::string file = (folder() / "costs.json").string();
  ASSERT_TRUE(write_file(file, R"({"steps": [
    {"decodes": 0, "prompt_tokens": 512, "median_seconds": 2}, {"decodes": 0, "prompt_tokens": 1024, "median_seconds": 4},
    {"decodes": 1, "prompt_tokens": 0, "median_seconds": 0.25}, {"decodes": 1, "prompt_tokens": 512, "median_seconds": 3},
    {"decodes": 1, "prompt_tokens": 1024, "median_seconds": 5}]})"));
  ASSERT_EQ(run(kTwoTurns, {"--limit", "1", "--step-costs", file}), 0);
  EXPECT_DOUBLE_EQ(numbers()["simulated_s"].get<double>(), 4 + 8 * 0.25);
  EXPECT_DOUBLE_EQ(numbers()["first_token_s"]["median"].get<double>(), 4);
  EXPECT_DOUBLE_EQ(numbers()["mean_token_s"].get<double>(), 0.25);
  EXPECT_DOUBLE_EQ(numbers()["token_s"]["p99"].get<double>(), 0.25);
  EXPECT_EQ(run(kTwoTurns, {"--step-costs", file, "--step-ms", "3"}), -1) << "they say different things";
  EXPECT_EQ(run(kTwoTurns, {"--step-costs", file + "x"}), 1);
}

TEST_F(Simulate, honours_its_flags) {
  ASSERT_EQ(run(kTwoTurns, {"--no-enable-prefix-caching", "--cache-tokens", "2K", "--rate", "10"}), 0);
  EXPECT_EQ(numbers()["cached_tokens"], 0);
  EXPECT_EQ(numbers()["cache_blocks"], 125);
  EXPECT_LT(numbers()["simulated_s"].get<double>(), 7);
  ASSERT_EQ(run(kTwoTurns, {"--limit", "1", "--block-size", "512", "--step-ms", "100"}), 0);
  EXPECT_EQ(numbers()["requests"], 1);
  EXPECT_GE(numbers()["gap_s"]["median"].get<double>(), 0.1);
  ASSERT_EQ(run(kTwoTurns, {"--cache-tokens", "1100"}), 0);
  EXPECT_EQ(numbers()["refused"], 1);
}

TEST_F(Simulate, says_in_a_sentence_what_is_wrong) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run("{}\n", {}), 1);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("line 1: 'timestamp' is missing"), std::string::npos);
  EXPECT_EQ(run(kTwoTurns, {"--cache-tokens", "3"}), 1);
  EXPECT_EQ(run(kTwoTurns, {"--eviction", "random"}), -1);
  EXPECT_EQ(run(kTwoTurns, {"--step-ms", "0"}), -1);
}

/// The text of a .zst file; empty without this file or without the program zstd.
std::string decompressed(const std::string& file) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(("zstd -dqc '" + file + "' 2>/dev/null").c_str(), "r"), ::pclose);
  std::string text;
  char buffer[65536];
  for (std::size_t n = 0; pipe && (n = std::fread(buffer, 1, sizeof buffer, pipe.get())) > 0;) text.append(buffer, n);
  return text;
}

TEST(SimulateRealTrace, of_mooncakes_conversations_reaches_its_ideal_and_at_a_tenth_of_the_size_beats_least_recently_used) {
  const char* data = std::getenv("BATON_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "BATON_TEST_DATA is not set: the real trace is not replayed";
  const std::string text = decompressed(std::string(data) + "/traces-mooncake/conversation_trace.jsonl.zst");
  if (text.empty()) GTEST_SKIP() << "the trace, or the program zstd, is not there";
  const auto trace = parse_trace(text, "conversation_trace");
  ASSERT_TRUE(trace) << trace.error().message;
  ReplayOptions options;
  options.block_len = 512;
  options.n_blocks = static_cast<std::int32_t>(blocks_for_all(*trace, 512));
  const ReplayReport ideal = replay(*trace, options);
  EXPECT_EQ(ideal.n_requests, 12031);
  EXPECT_EQ(ideal.runs, 288500);
  EXPECT_NEAR(ideal.share_of_runs(), 0.366, 0.0005);
  options.n_blocks = static_cast<std::int32_t>((ideal.runs - ideal.cached_runs) / 10);  // of the distinct ones
  const ReplayReport reuse = replay(*trace, options);
  options.life_of_reuse = 0;
  const ReplayReport lru = replay(*trace, options);
  EXPECT_GT(reuse.share_of_runs(), lru.share_of_runs() + 0.005);
}

}  // namespace
}  // namespace baton
