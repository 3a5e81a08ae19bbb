/// The prefix cache benchmark on models small enough for a test: what requests compute again, not times.
#include "bench/prefix_cache/prefix_cache_bench.h"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/program_run.h"
#include "support/source_folder.h"
#include "support/tiny_shape.h"

namespace baton {
namespace {

class PrefixCacheBench : public ::testing::Test {
 protected:
  PrefixCacheBench() {
    options_.shape = shape_.folder().string();
    options_.model.threads = 1;
    options_.model.kv_cache_bytes = 64 << 20;
    options_.cases = {.shared = {100, 480}, .own = {40, 200}, .n_turns = 4, .n_forks = 6, .answer_len = 8};
  }
  const test::TinyShape shape_{"prefix_cache_bench"};
  PrefixCacheBenchOptions options_;
};

TEST_F(PrefixCacheBench, finds_that_attention_computes_nothing_more_than_its_keys_and_values_need) {
  const auto report = run_prefix_cache_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->cases.size(), 2 * 4 + 4 * 2u);
  EXPECT_TRUE(report->left_out.empty());
  for (const PrefixCaseResult& each : report->cases) {
    EXPECT_EQ(each.n_rows_untold, 0) << each.of.kind;
    EXPECT_TRUE(each.keeps_goal());
    ASSERT_EQ(std::ssize(each.requests), each.of.n_requests);
    for (const CaseRequest& request : each.requests) EXPECT_EQ(request.more(), 0) << each.of.kind;
    EXPECT_EQ(each.requests.front().shared_len, each.of.is_registered() ? each.of.shared_len / 16 * 16 : 0) << each.of.kind;
    EXPECT_GE(each.requests.back().shared_len, each.of.shared_len) << each.of.kind;
    EXPECT_GT(each.requests.back().first_token_ms, 0);
  }
  // 480 of 520 tokens are known, all in full blocks; the prompt's own 40 are computed.
  const PrefixCaseResult& shared = report->cases[2];
  EXPECT_EQ(shared.of.kind, "shared");
  EXPECT_EQ(shared.requests[1].again_in_kv, 0);
  EXPECT_DOUBLE_EQ(shared.requests[1].hit_rate(), 480.0 / 520);
}

/// States are kept at some ends of blocks. The second request of a prompt that was not announced computes it again, and leaves the
/// state for all others.
TEST_F(PrefixCacheBench, finds_that_recurrent_layers_compute_at_most_the_goal_more) {
  options_.shape = (test::source_folder() / "tests/goldens/qwen3_5_tiny_chunks").string();
  options_.model.kv_cache_bytes = 256 << 20;
  options_.cases.shared = {100, 464};  // 464: an answer of which no token has a position divisible by 64
  options_.cases.n_turns = 6;
  options_.cases.answer_len = 32;
  const auto report = run_prefix_cache_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->cases.size(), 2 * 4 + 4 * 2u);
  for (const PrefixCaseResult& each : report->cases) {
    const std::string name = fmt::format("{} {} + {}", each.of.kind, each.of.shared_len, each.of.own_len);
    EXPECT_EQ(each.n_rows_untold, 0) << name;
    EXPECT_TRUE(each.keeps_goal()) << name << ": " << each.most_more();
    EXPECT_GT(each.requests.back().hit_rate(), 0.3) << name;
    if (each.of.kind == "shared" || each.of.kind == "forks") {
      EXPECT_EQ(each.requests[1].again, each.requests[1].shared_len) << name;
      EXPECT_EQ(each.most_more(), 0) << name;
    }
  }
}

/// Without memory for snapshots no prefix can be registered.
TEST_F(PrefixCacheBench, keeps_the_cases_that_finish_when_others_fail) {
  options_.shape = (test::source_folder() / "tests/goldens/qwen3_5_tiny_chunks").string();
  options_.model.snapshot_bytes = 0;
  options_.cases = {.kinds = {"shared", "registered", "identical"}, .shared = {100}, .own = {40}, .answer_len = 4};
  const auto report = run_prefix_cache_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->failed.size(), 1U);
  EXPECT_EQ(report->failed[0].of.kind, "registered");
  EXPECT_NE(report->failed[0].error.find("raise --state-cache-memory-bytes"), std::string::npos) << report->failed[0].error;
  ASSERT_EQ(report->cases.size(), 2U);
  EXPECT_EQ(report->cases[1].of.kind, "identical") << "the case after it runs";
  for (const PrefixCaseResult& each : report->cases) EXPECT_EQ(std::ssize(each.requests), each.of.n_requests);
  options_.model.log_level = "error";
  const test::ProgramEnd end = test::run_program("", [&] { return prefix_cache_bench_main(options_, "the command"); });
  EXPECT_EQ(end.code, 1);
  EXPECT_NE(end.out.find("| identical | 100 | 40 | 2 |"), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("Failed: registered 100 + 40: "), std::string::npos) << end.out;
}

TEST_F(PrefixCacheBench, leaves_out_what_is_longer_than_contexts) {
  options_.model.max_model_len = 300;
  const auto report = run_prefix_cache_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  for (const PrefixCaseResult& each : report->cases) EXPECT_EQ(each.of.shared_len, 100);
  EXPECT_EQ(report->cases.size() + report->left_out.size(), 2 * 4 + 4 * 2u);
  options_.model.max_model_len = 100;
  const auto none = run_prefix_cache_bench(options_);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message,
            options_.shape + " accepts contexts of 100 tokens, and every case is longer: take shorter ones (--shared, --own)");
}

}  // namespace
}  // namespace baton
