/// Counts of chosen experts, through the decode benchmark.
#include "bench/engine/expert_counts.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "bench/engine/decode_bench.h"
#include "bench/engine/decode_report.h"
#include "ranks/rank_group.h"
#include "support/tiny_shape.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

DecodeBenchOptions counted(const fs::path& folder) {
  DecodeBenchOptions options;
  options.shape = folder.string();
  options.shared = {32};
  options.n_new = 6;
  options.n_runs = 1;
  options.arms = {"relay"};
  options.requests = {1, 40};
  options.model.threads = 1;
  options.count_experts = true;
  return options;
}

TEST(ExpertCounts, are_those_of_the_last_step) {
  const fs::path folder = fs::path(::testing::TempDir()) / "baton_expert_counts";
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"architectures": ["MixtralForCausalLM"], "vocab_size": 160,
    "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 32,
    "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 512,
    "torch_dtype": "float32"})";
  DecodeBenchOptions options = counted(folder);
  const auto report = run_decode_bench(options);
  options.count_experts = false;
  const auto uncounted = run_decode_bench(options);
  fs::remove_all(folder);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->n_experts, 8);
  EXPECT_EQ(report->runs[0].experts_per_layer, 2) << "those of one row";
  EXPECT_GT(report->runs[1].experts_per_layer, 2);
  EXPECT_LE(report->runs[1].experts_per_layer, 8);
  EXPECT_NE(decode_text(*report, counted(folder), "the command").find("| 2.0 of 8 |"), std::string::npos);
  EXPECT_EQ(decode_json(*report, counted(folder), "the command")["runs"][0]["experts_per_layer"], 2.0);
  ASSERT_TRUE(uncounted) << uncounted.error().message;
  EXPECT_EQ(uncounted->runs[0].experts_per_layer, 0);
  EXPECT_EQ(decode_text(*uncounted, options, "the command").find("experts a layer"), std::string::npos);
}

TEST(ExpertCounts, are_refused_where_there_are_no_experts) {
  const test::TinyShape shape{"expert_counts_none"};
  const auto report = run_decode_bench(counted(shape.folder()));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().message, shape.folder().string() + " has no experts to count");
  EXPECT_EQ(report.error().param, "count-experts");
}

TEST(ExpertCounts, are_refused_for_several_ranks) {
  const test::TinyShape shape{"expert_counts_ranks"};
  DecodeBenchOptions options = counted(shape.folder());
  options.model.ranks = RankGroup::make_threads({.world_size = 2}).value().front();
  const auto report = run_decode_bench(options);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().message, "--count-experts counts on one device, without --tensor-parallel-size");
}

}  // namespace
}  // namespace baton
