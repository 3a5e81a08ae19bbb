/// The attention benchmark on shapes small enough for a test: its counts, not its times.
#include "bench/attention/attention_bench.h"

#include <string>

#include <gtest/gtest.h>

#include "kernels/backend.h"

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
  const AttentionBenchCase grouped{"free", 4, 4, 64, 8, 1024, 32, 2};
  const auto report = run_attention_bench(options, std::vector{shared, alone, grouped});
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->runs.size(), 3u);
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
  EXPECT_EQ(report->runs[2].arms[0].kv_bytes, token_bytes * 8 * (1024 + 32));
  EXPECT_EQ(report->runs[2].arms[1].kv_bytes, token_bytes * (2 * 1024 + 8 * 32));
  EXPECT_GT(report->read_bytes_per_us, 0);
  EXPECT_NE(attention_plans(*report).find("node [0, 2048)"), std::string::npos);
  const std::string tables = attention_tables(*report);
  EXPECT_NE(tables.find("| 8 | 32 | 2048 |"), std::string::npos);
  EXPECT_EQ(tables.find("FlashInfer"), std::string::npos) << "figures of an H200 beside a CPU's";
  const json::Value written = attention_json(*report, "command");
  EXPECT_EQ(written["runs"].size(), 3u);
  EXPECT_EQ(written["runs"][2]["groups"], 2);
}

// A prefix comes first and may be one piece; after it every chunk of a request's own 600 tokens is a piece.
TEST(AttentionBench, batch_invariant_plans_cut_own_contexts_at_every_chunk) {
  AttentionBenchOptions options;
  options.n_runs = 1;
  options.threads = 1;  // more threads would cut more
  options.arms = {"relay"};
  for (const bool batch_invariant : {false, true}) {
    options.batch_invariant = batch_invariant;
    const auto report = run_attention_bench(options, std::vector<AttentionBenchCase>{{"W2", 4, 4, 64, 8, 2048, 600}});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->runs[0].arms[0].n_partials, 8 * (1 + (batch_invariant ? 3 : 1)));
  }
}

TEST(AttentionBench, rotates_layers_until_they_leave_the_cache) {
  const AttentionRotation rotation{256 << 20, 2, 32};
  EXPECT_EQ(rotation.n_layers(64 << 20), 4);
  EXPECT_EQ(rotation.n_layers((64 << 20) - 1), 5);
  EXPECT_EQ(rotation.n_layers(1 << 30), 2);
  EXPECT_EQ(rotation.n_layers(1), 256);
}

TEST(AttentionBench, knows_what_each_line_of_the_tables_has_to_reach) {
  const auto cases = attention_bench_cases({"W1", "W2", "W3"});
  for (const AttentionBenchCase& of : cases) {
    const auto references = attention_references(of);
    ASSERT_TRUE(references);
    EXPECT_EQ(references->peers.size() + references->published.size(), reference_titles(of.table).size());
    EXPECT_TRUE(attention_goal_us(of, 16.5, 24.4));
  }
  EXPECT_DOUBLE_EQ(*attention_goal_us(cases[0], 16.5, 15), 18.5);
  EXPECT_DOUBLE_EQ(attention_references(cases[0])->best_peer_us(), 23.5);
  EXPECT_DOUBLE_EQ(*attention_goal_us(cases[10], 0, 24), 1.15 * 24 + 3);
  EXPECT_DOUBLE_EQ(attention_references(cases[10])->best_peer_us(), 32.1);
  EXPECT_DOUBLE_EQ(*attention_goal_us(cases[18], 0, 1.4), 7);
  // 128 requests after 32768 tokens are limited by matmuls: 4 * 32 * 128 * 128 * (32768 + 512) flops at 600 TFLOP/s.
  EXPECT_DOUBLE_EQ(*attention_goal_us(cases.back(), 0, 88.7), 1.25 * (4.0 * 32 * 128 * 128 * (32768 + 512) / 600e6) + 4);
  EXPECT_FALSE(attention_goal_us({"free", 32, 8, 128, 8, 512, 128}, 1, 1));
}

TEST(AttentionBench, makes_cases_of_free_shapes) {
  AttentionBenchOptions options;
  options.free.requests = {8, 32};
  options.free.shared = {512, 2048};
  options.free.n_groups = 4;
  const auto cases = cases_of(options);
  ASSERT_TRUE(cases);
  ASSERT_EQ(cases->size(), 4u);
  EXPECT_EQ((*cases)[3].n_requests, 32);
  EXPECT_EQ((*cases)[3].shared_len, 2048);
  EXPECT_EQ((*cases)[3].distinct_tokens(), 4 * 2048 + 32 * 512);
  options.free.shared = {100};
  EXPECT_FALSE(cases_of(options)) << "not whole blocks";
  options.free.shared = {512};
  options.free.n_groups = 9;
  EXPECT_FALSE(cases_of(options)) << "more groups than 8 requests";
  options.free.n_groups = 1;
  options.free.n_kv_heads = 5;
  EXPECT_FALSE(cases_of(options)) << "32 heads over 5";
}

TEST(AttentionBench, counts_what_a_tree_shares_on_each_level) {
  AttentionBenchOptions options;
  options.n_runs = 1;
  options.free.n_heads = options.free.n_kv_heads = 4;
  options.free.head_dim = 64;
  options.free.trees = {"2,4,16_1024,2048,40", "3_100"};
  const auto cases = cases_of(options);
  ASSERT_TRUE(cases) << cases.error().message;
  const auto report = run_attention_bench(options, *cases);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->runs.size(), 2u);
  const AttentionBenchRun& run = report->runs[0];
  const std::int64_t token_bytes = 2 * 4 * 64 * 2;
  EXPECT_EQ(run.distinct_bytes, token_bytes * (2 * 1024 + 4 * 2048 + 16 * 40));
  EXPECT_EQ(run.plain_bytes, token_bytes * 16 * (1024 + 2048 + 40));
  ASSERT_EQ(run.arms.size(), 2u);
  EXPECT_EQ(run.arms[0].kv_bytes, run.plain_bytes);
  const std::string features = make_backend("cpu", {}).value()->info().features;
  // By what matmuls cost with these two, the plan reads the first level once for each node of the second.
  const bool joins_levels = features == "avx2" || features == "avx512";
  EXPECT_EQ(run.arms[1].kv_bytes, joins_levels ? token_bytes * (4 * 1024 + 4 * 2048 + 16 * 40) : run.distinct_bytes);
  EXPECT_EQ(report->runs[1].arms.size(), 1u) << "nothing is shared";
  EXPECT_NE(attention_tables(*report).find("| 16 | 40 | 2 x 1024 + 4 x 2048 |"), std::string::npos);
  EXPECT_NE(attention_tables(*report).find("| 3 | 100 | 0 |"), std::string::npos);
  const json::Value written = attention_json(*report, "command");
  EXPECT_EQ(written["runs"][0]["tree"][1]["nodes"], 4);
  EXPECT_EQ(written["runs"][0]["tree"][1]["len"], 2048);
  EXPECT_EQ(written["runs"][0]["shared"], 3072);
  EXPECT_FALSE(written["runs"][1].contains("tree"));
}

TEST(AttentionBench, counts_keys_alone_where_their_beginnings_are_values) {
  AttentionBenchOptions options;
  options.n_runs = 1;
  options.free.n_heads = 4;
  options.free.n_kv_heads = 1;
  options.free.head_dim = 96;
  options.free.latent_dim = 64;
  options.free.requests = {8};
  options.free.shared = {1024};
  options.free.own = {32};
  const auto cases = cases_of(options);
  ASSERT_TRUE(cases) << cases.error().message;
  const auto report = run_attention_bench(options, *cases);
  ASSERT_TRUE(report) << report.error().message;
  const AttentionBenchRun& run = report->runs.at(0);
  EXPECT_EQ(run.distinct_bytes, 96 * 2 * (1024 + 8 * 32));
  EXPECT_EQ(run.plain_bytes, 96 * 2 * 8 * (1024 + 32));
  EXPECT_EQ(run.query_bytes, 2 * 8 * 4 * (96 + 64));
  EXPECT_EQ(run.flops, 2.0 * 4 * (96 + 64) * 8 * (1024 + 32));
  EXPECT_EQ(run.arms.at(0).kv_bytes, run.plain_bytes);
  EXPECT_EQ(attention_json(*report, "command")["runs"][0]["latent_dim"], 64);
  options.free.n_kv_heads = 2;
  EXPECT_FALSE(cases_of(options)) << "two KV heads";
  options.free.n_kv_heads = 1;
  options.free.latent_dim = 96;
  EXPECT_FALSE(cases_of(options)) << "nothing is rotated";
}

TEST(AttentionBench, has_pats_twenty_trees_with_four_head_shapes) {
  const auto cases = attention_bench_cases({"pat"});
  ASSERT_EQ(cases.size(), 80u);
  EXPECT_EQ(cases[0].table, "PAT 32/32");
  EXPECT_EQ(cases[79].table, "PAT 64/8");
  EXPECT_EQ(shared_text(cases[5]), "32 + 8 x 512");
  EXPECT_EQ(cases[5].distinct_tokens(), 32 + 8 * 512 + 512 * 256);
  EXPECT_EQ(cases[5].plain_tokens(), 512 * (32 + 512 + 256));
  EXPECT_EQ(shared_text(cases[19]), "0");
  EXPECT_EQ(cases[19].n_requests, 256);
  EXPECT_EQ(cases[19].own_len, 4096);
  for (const AttentionBenchCase& of : cases) {
    EXPECT_FALSE(attention_goal_us(of, 1, 1));
    EXPECT_EQ(of.own_len % kBenchBlockLen, 0);
  }
}

TEST(AttentionBench, refuses_trees_that_no_blocks_can_hold) {
  const auto error_of = [](const char* tree) {
    AttentionBenchOptions options;
    options.free.trees = {tree};
    const auto cases = cases_of(options);
    return cases ? "" : cases.error().message;
  };
  EXPECT_EQ(error_of("1,8_16,7"), "");
  EXPECT_NE(error_of("1,8_17,7").find("whole blocks of 16 tokens, and 17 is not"), std::string::npos);
  EXPECT_NE(error_of("3,8_16,7").find("8 nodes cannot be divided equally among 3"), std::string::npos);
  for (const char* tree :
       {"", "_", "1,8", "1,8_16", "1,8_16,", "1,0_16,7", "1,8_16,7,", "1;8_16;7", "1,8_16,-7", "1,8_16,99999999"})
    EXPECT_NE(error_of(tree).find("COUNTS_LENGTHS"), std::string::npos) << tree;
}

TEST(AttentionBench, runs_the_arms_it_is_asked_for) {
  AttentionBenchOptions options;
  options.n_runs = 1;
  options.arms = {"relay"};
  const auto report = run_attention_bench(options, std::vector<AttentionBenchCase>{{"free", 4, 4, 64, 8, 1024, 64}});
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->runs[0].arms.size(), 1u);
  EXPECT_EQ(report->runs[0].best().arm, "relay");
  EXPECT_EQ(report->runs[0].arm("paged"), nullptr);
  EXPECT_NE(attention_tables(*report).find("| 8 | 64 | 1024 | - |"), std::string::npos);
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
