/// The startup benchmark: the parts of a start, processes that are started, files dropped from the page cache.
#include "bench/startup/startup_bench.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "bench/startup/child_process.h"
#include "bench/startup/page_cache.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

TEST(StartupBench, measures_the_parts_of_a_start) {
  StartupBenchOptions options;
  options.model.threads = 1;
  const auto before = std::chrono::steady_clock::now();
  options.started_at_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(before.time_since_epoch()).count() - 1'000'000'000;
  const auto measured = measure_start(options);
  ASSERT_TRUE(measured) << measured.error().message;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  EXPECT_EQ((*measured)["model"], "demo");
  EXPECT_EQ((*measured)["process"].get<double>() >= 1, true);
  double sum = 0;
  for (const char* part : {"process", "files", "device_s", "weights", "engine", "first_token"}) {
    EXPECT_GT((*measured)[part].get<double>(), 0) << part;
    sum += (*measured)[part].get<double>();
  }
  EXPECT_LE(sum, 1 + seconds);
}

/// A shell in place of the program: it prints what a start would, after checking what it was started with.
std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script, "sh"}; }

TEST(StartupBench, starts_processes_and_reports_medians_of_their_parts) {
  StartupBenchOptions options;
  options.n_iters_cold = 2;
  options.n_iters_warm = 3;
  const auto report = run_startup_bench(
      options, shell(R"(test "$1" = --started-at-ns && test "$2" -gt 0 && echo '{"model": "m", "device": "d", "features": "f",
        "weight_dtype": "bfloat16", "process": 0.01, "files": 0.02, "device_s": 0.04, "weights": 1, "engine": 2, "first_token": 0.5}')"));
  ASSERT_TRUE(report) << report.error().message;
  const json::Value written = startup_json(*report, options, "the command");
  EXPECT_EQ(written["model"], "m");
  EXPECT_EQ(written["cold_startup_times"].size(), 2u);
  EXPECT_EQ(written["warm_startup_times"].size(), 3u);
  EXPECT_NEAR(written["avg_warm_startup_time"].get<double>(), 3.57, 1e-12);
  EXPECT_NEAR(written["warm_startup_percentiles"]["90"].get<double>(), 3.57, 1e-12);
  EXPECT_EQ(written["cold_parts"]["engine"], 2);
  const std::string text = startup_text(*report, options, "the command");
  EXPECT_TRUE(text.starts_with("the command\nbaton ")) << text;
  for (const char* part : {": d (f)\n", "| cold | 3.570 | 0% | 0.010 | 0.020 | 0.040 | 1.000 | 2.000 | 0.500 |",
                           "| warm | 3.570 |", "m, bfloat16 weights", "Medians of 2 cold and 3 warm starts"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST(StartupBench, says_whether_cold_starts_were_cold) {
  StartupReport report;
  report.cold.resize(1);
  report.left = {1'000'000'000, 10'000'000};
  EXPECT_NE(startup_text(report, {}, "").find("(1000.0 MB) were dropped from the page cache"), std::string::npos);
  report.left.cached_bytes = 600'000'000;
  EXPECT_NE(startup_text(report, {}, "").find("kept 60% of the model's files"), std::string::npos);
  EXPECT_NEAR(startup_json(report, {}, "")["page_cache_share"].get<double>(), 0.6, 1e-9);
  report.cold.clear();
  EXPECT_EQ(startup_text(report, {}, "").find("page cache"), std::string::npos);
  EXPECT_EQ(startup_json(report, {}, "")["page_cache_share"], nullptr);
  EXPECT_EQ(startup_json(report, {}, "")["avg_cold_startup_time"], nullptr);
}

TEST(StartupBench, fails_with_a_start_that_fails) {
  StartupBenchOptions options;
  options.n_iters_cold = 1;
  EXPECT_EQ(run_startup_bench(options, shell("exit 3")).error().message, "a started process ended with exit code 3");
  EXPECT_FALSE(run_startup_bench(options, shell("echo '{\"process\": 1}'")));
  EXPECT_FALSE(run_startup_bench(options, shell("echo nothing")));
}

TEST(ChildProcess, gives_its_output_or_says_how_it_ended) {
  EXPECT_EQ(output_of_process({"/bin/sh", "-c", "echo a; echo b"}).value(), "a\nb\n");
  EXPECT_EQ(output_of_process({"/bin/sh", "-c", "head -c 100000 /dev/zero"}).value().size(), 100'000u);
  EXPECT_EQ(output_of_process({"/bin/sh", "-c", "kill -9 $$"}).error().message, "a started process was ended by signal 9");
  EXPECT_EQ(output_of_process({"/no/such/program"}).error().code, ErrorCode::io);
}

TEST(PageCache, counts_the_bytes_of_a_folders_files) {
  const fs::path folder = fs::path(::testing::TempDir()) / "baton_page_cache";
  fs::create_directories(folder / "below");
  std::ofstream(folder / "one") << std::string(10'000, 'x');
  std::ofstream(folder / "two") << std::string(5'000, 'y');
  std::ofstream(folder / "empty");
  std::ofstream(folder / "below" / "three") << std::string(5'000, 'z');
  const PageCacheShare left = drop_page_cache(folder);
  EXPECT_EQ(left.bytes, 15'000);
  EXPECT_GE(left.cached_bytes, 0);
  EXPECT_LE(left.cached_bytes, left.bytes);
  EXPECT_EQ(drop_page_cache(folder / "missing").bytes, 0);
  EXPECT_EQ(PageCacheShare{}.share(), 0);
  fs::remove_all(folder);
}

TEST(StartupBenchFlags, have_the_names_of_vllm) {
  StartupBenchOptions options;
  CLI::App app{"test"};
  add_startup_bench_options(app, options);
  std::vector<std::string> words{"--num-iters-cold", "1", "--num-iters-warmup", "0",
                                 "--num-iters-warm", "2", "--started-at-ns",    "7"};
  std::reverse(words.begin(), words.end());
  app.parse(words);
  EXPECT_EQ(options.n_iters_cold, 1);
  EXPECT_EQ(options.n_iters_warmup, 0);
  EXPECT_EQ(options.n_iters_warm, 2);
  EXPECT_EQ(options.started_at_ns, 7);
  EXPECT_EQ(app.help().find("--started-at-ns"), std::string::npos);
}

}  // namespace
}  // namespace baton
