/// `baton bench serve` from its flags to its files (bench/serve/serve_bench.h), on a server in this process.
#include "bench/serve/serve_bench.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "io/file.h"
#include "server/server_fixture.h"
#include "support/program_run.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

ServeBenchOptions parsed_options(Words words) {
  ServeBenchOptions options;
  CLI::App app{"test"};
  add_serve_bench_options(app, options);
  std::ranges::reverse(words);
  app.parse(words);
  return options;
}

test::ProgramEnd run_bench(const Words& words) {
  return test::run_program("", [&] { return serve_bench_main(parsed_options(words), "baton bench serve"); });
}

/// Flags for a small load on the server.
Words small_load(const ServerFixture& server, const Words& more) {
  Words words{"--port",
              std::to_string(server.server->port()),
              "--vocab-size",
              "256",
              "--num-prompts",
              "6",
              "--random-input-len",
              "9",
              "--random-output-len",
              "4"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

fs::path empty_folder(const std::string& name) {
  fs::path folder = fs::path(::testing::TempDir()) / name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

TEST(ServeBench, reads_lists_of_rates_percentiles_and_levels) {
  const ServeBenchOptions options = parsed_options({"--request-rate", "1,2.5", "inf", "--metric-percentiles", "50,99",
                                                    "--goodput", "ttft:200", "tpot:50", "--percentile-metrics", "itl,ttft"});
  EXPECT_EQ(options.rates.size(), 3U);
  EXPECT_EQ(options.rates[1], 2.5);
  EXPECT_TRUE(std::isinf(options.rates[2]));
  EXPECT_TRUE(options.is_rate_given);
  EXPECT_EQ(options.report.percents, (std::vector<double>{50, 99}));
  EXPECT_EQ(options.goodput, (Words{"ttft:200", "tpot:50"}));
  EXPECT_EQ(options.report.metrics, (Words{"itl", "ttft"}));
  EXPECT_FALSE(parsed_options({}).is_rate_given);
}

TEST(ServeBench, refuses_wrong_values_by_the_name_of_the_flag) {
  const std::vector<std::pair<Words, std::string>> cases{
      {{"--goodput", "itl:5"}, "--goodput must be ttft:MS, tpot:MS or e2el:MS, not 'itl:5'"},
      {{"--goodput", "ttft:5s"}, "--goodput must be"},
      {{"--goodput", "ttft"}, "--goodput must be"},
      {{"--extra-body", "[1]"}, "--extra-body must be a JSON object"},
      {{"--extra-body", "{"}, "--extra-body"},
      {{"--metadata", "a"}, "--metadata must be KEY=VALUE"},
      {{"--header", "a: b"}, "--header must be KEY=VALUE"},
      {{"--request-rate", "0"}, "--request-rate must be positive"},
      {{"--burstiness", "0"}, "--burstiness must be positive"},
      {{"--metric-percentiles", "101"}, "--metric-percentiles must be from 0 to 100"},
      {{"--backend", "openai-chat", "--endpoint", "/v1/completions"}, "--backend openai-chat does not go with"},
      {{"--base-url", "https://host"}, "the URL must be http://HOST:PORT"},
      {{"--ready-check-timeout-sec", "nan"}, "--ready-check-timeout-sec must be from 0 to 1e+09, not nan"},
      {{"--ready-check-timeout-sec", "1e300"}, "--ready-check-timeout-sec must be from 0 to 1e+09, not 1e+300"},
      {{"--append-result"}, "--append-result needs --result-filename"},
      {{"--result-dir", "x"}, "--result-dir and --result-filename need --save-result or --append-result"},
      {{"--result-filename", "x"}, "--result-dir and --result-filename need --save-result or --append-result"},
      {{"--save-detailed"}, "--save-detailed needs --save-result, --append-result or --json"},
  };
  for (const auto& [words, message] : cases) {
    const test::ProgramEnd end = run_bench(words);
    EXPECT_EQ(end.code, 2) << message;
    EXPECT_NE(end.error.find(message), std::string::npos) << end.error;
  }
}

TEST(ServeBench, prints_and_writes_what_vllm_does) {
  const ServerFixture server;
  const fs::path folder = empty_folder("serve_bench_result");
  const test::ProgramEnd end = run_bench(
      small_load(server, {"--save-result", "--save-detailed", "--result-dir", folder.string(), "--metadata", "host=here",
                          "--goodput", "ttft:60000,e2el:60000", "--metric-percentiles", "50,99.9", "--max-concurrency", "3"}));
  ASSERT_EQ(end.code, 0) << end.error;
  for (const char* const line : {"Successful requests:                     6", "Failed requests:                         0",
                                 "Total input tokens:                      54", "Total generated tokens:                  24",
                                 "P99.9 TTFT (ms):", "-----Time per Output Token (excl. 1st token)------"})
    EXPECT_NE(end.out.find(line), std::string::npos) << line << "\n" << end.out;
  Words names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  ASSERT_EQ(names.size(), 1U);
  EXPECT_TRUE(names[0].starts_with("openai-infqps-concurrency3-demo-20") && names[0].ends_with(".json")) << names[0];
  const json::Value result = *json::parse_file(folder / names[0]);
  for (const char* const key : {"date",
                                "endpoint_type",
                                "backend",
                                "label",
                                "model_id",
                                "tokenizer_id",
                                "num_prompts",
                                "request_rate",
                                "burstiness",
                                "max_concurrency",
                                "duration",
                                "completed",
                                "failed",
                                "total_input_tokens",
                                "total_output_tokens",
                                "request_throughput",
                                "request_goodput",
                                "output_throughput",
                                "total_token_throughput",
                                "max_output_tokens_per_s",
                                "max_concurrent_requests",
                                "mean_ttft_ms",
                                "median_ttft_ms",
                                "std_ttft_ms",
                                "p50_ttft_ms",
                                "p99.9_ttft_ms",
                                "mean_tpot_ms",
                                "std_itl_ms",
                                "p99.9_e2el_ms",
                                "input_lens",
                                "output_lens",
                                "start_times",
                                "ttfts",
                                "itls",
                                "generated_texts",
                                "errors"})
    EXPECT_TRUE(result.contains(key)) << key;
  EXPECT_EQ(result["completed"], 6);
  EXPECT_EQ(result["request_rate"], "inf");
  EXPECT_EQ(result["host"], "here");
  EXPECT_EQ(result["request_goodput"], result["request_throughput"]);
  EXPECT_EQ(result["output_lens"], json::Value(std::vector<int>(6, 4)));
  EXPECT_LE(result["max_concurrent_requests"].get<int>(), 3);
  EXPECT_TRUE(result["prefix_hit_rate"].is_number());
  EXPECT_GT(result["kv_bytes_per_token"].get<double>(), 0);
}

TEST(ServeBench, of_several_rates_makes_a_table_and_a_list) {
  const ServerFixture server;
  const fs::path folder = empty_folder("serve_bench_sweep");
  const std::string file = (folder / "all.json").string();
  const test::ProgramEnd end =
      run_bench(small_load(server, {"--request-rate", "200,400", "--json", file, "--prefix-len", "40", "--num-warmups", "1"}));
  ASSERT_EQ(end.code, 0) << end.error;
  EXPECT_NE(end.out.find("| 200 | 6 | 0 |"), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("| 400 | 6 | 0 |"), std::string::npos) << end.out;
  const json::Value all = *json::parse_file(file);
  ASSERT_EQ(all["runs"].size(), 2U);
  EXPECT_EQ(all["runs"][1]["request_rate"], 400.0);
  EXPECT_NE(all["runs"][0]["seed"], all["runs"][1]["seed"]);
  // 32 of the prefix's 40 tokens are whole blocks, and nothing else is known from the warm-up or the rate before.
  for (const json::Value& run : all["runs"]) EXPECT_DOUBLE_EQ(run["prefix_hit_rate"].get<double>(), 32.0 / 49);
}

TEST(ServeBench, appends_lines_to_a_file) {
  const ServerFixture server;
  const fs::path folder = empty_folder("serve_bench_append");
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(
        run_bench(small_load(server, {"--append-result", "--result-dir", folder.string(), "--result-filename", "x"})).code, 0);
  const std::string text = *read_file(folder / "x");
  EXPECT_EQ(std::ranges::count(text, '\n'), 2);
}

TEST(ServeBench, looks_first_whether_its_results_can_be_written) {
  const fs::path folder = empty_folder("serve_bench_unwritable");
  ASSERT_TRUE(write_file(folder / "file", "text"));
  fs::create_directories(folder / "taken.json");
  // No server is there: without the check each of them would wait for one, and say so.
  const auto error_of = [&](const Words& more) {
    Words words{"--port", "1", "--ready-check-timeout-sec", "0.1", "--vocab-size", "9"};
    words.insert(words.end(), more.begin(), more.end());
    const test::ProgramEnd end = run_bench(words);
    EXPECT_EQ(end.code, 1);
    return end.error;
  };
  const std::string inside = (folder / "file").string(), of_folder = (folder / "taken.json").string();
  EXPECT_NE(error_of({"--save-result", "--result-dir", inside}).find("baton bench serve: --save-result: "), std::string::npos);
  EXPECT_NE(error_of({"--save-result", "--result-dir", folder.string(), "--result-filename", "taken.json"})
                .find("--save-result: cannot write " + of_folder),
            std::string::npos);
  EXPECT_NE(error_of({"--append-result", "--result-filename", inside + "/x"}).find("--append-result: "), std::string::npos);
  EXPECT_NE(error_of({"--append-result", "--result-filename", of_folder}).find("--append-result: "), std::string::npos);
  const std::string made = (folder / "new" / "deep").string();
  EXPECT_EQ(error_of({"--save-result", "--result-dir", made}).find("--save-result"), std::string::npos);
  EXPECT_TRUE(fs::is_directory(made));
  EXPECT_TRUE(fs::is_empty(made));
}

TEST(ServeBench, reports_failures_and_ends_with_1_if_all_fail) {
  const ServerFixture server;
  const test::ProgramEnd end = run_bench(small_load(server, {"--extra-body", R"({"max_tokens": -1})"}));
  EXPECT_EQ(end.code, 1);
  EXPECT_NE(end.out.find("Failed requests:                         6"), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("failed: HTTP/1.1 400 Bad Request: "), std::string::npos) << end.out;
}

TEST(ServeBench, says_what_it_needs_to_know_of_the_model) {
  const ServerFixture server;
  const test::ProgramEnd end = run_bench({"--port", std::to_string(server.server->port()), "--model", "alias"});
  EXPECT_EQ(end.code, 2);
  EXPECT_NE(end.error.find("'alias' is not a folder with a config.json here"), std::string::npos) << end.error;
  EXPECT_NE(end.error.find("--vocab-size"), std::string::npos);
  EXPECT_EQ(run_bench({"--port", "1", "--ready-check-timeout-sec", "0.1", "--vocab-size", "9"}).code, 1);
}

TEST(ServeBench, shuffles_own_parts_from_the_second_load_on) {
  Workload workload;
  for (int i = 0; i < 2; ++i) {
    std::vector<TokenId> prompt(50);
    for (std::size_t j = 0; j < 50; ++j) prompt[j] = static_cast<TokenId>(j);
    workload.requests.push_back({.prompt = prompt, .shared_len = 10});
  }
  EXPECT_EQ(workload_of_load(workload, 1, 0).requests[0].prompt, workload.requests[0].prompt);
  const Workload second = workload_of_load(workload, 1, 1);
  EXPECT_EQ(second.requests[0].prompt, workload_of_load(workload, 1, 1).requests[0].prompt);
  EXPECT_NE(second.requests[0].prompt, workload_of_load(workload, 1, 2).requests[0].prompt);
  EXPECT_NE(second.requests[0].prompt, second.requests[1].prompt);
  for (const WorkloadRequest& request : second.requests) {
    std::vector<TokenId> tokens = request.prompt;
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.begin() + 10, workload.requests[0].prompt.begin()));
    EXPECT_NE(tokens, workload.requests[0].prompt);
    std::ranges::sort(tokens);
    EXPECT_EQ(tokens, workload.requests[0].prompt);
  }
}

}  // namespace
}  // namespace baton
