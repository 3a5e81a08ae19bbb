/// The grammar benchmark on a model small enough for a test: what its arms count, and what it refuses.
#include "bench/engine/grammar_bench.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "io/file.h"
#include "io/json.h"
#include "support/tiny_shape.h"

namespace baton {
namespace {

class GrammarBench : public ::testing::Test {
 protected:
  GrammarBench() {
    std::ofstream(shape_.folder() / "config.json") << R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 8192,
      "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 64,
      "num_key_value_heads": 2, "max_position_embeddings": 2048, "torch_dtype": "float32", "eos_token_id": 2})";
    options_.shape = shape_.folder().string();
    options_.tokenizer = "demo";
    options_.model.threads = 1;
    options_.requests = 3;
    options_.n_new = 40;
    options_.n_runs = 2;
    options_.json_file = (shape_.folder() / "numbers.json").string();
  }
  const test::TinyShape shape_{"grammar_bench"};
  GrammarBenchOptions options_;
};

TEST_F(GrammarBench, counts_what_each_arm_does) {
  const auto report = run_grammar_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->runs.size(), kGrammarArms.size());
  EXPECT_GT(report->compile_ms, 0);
  for (const GrammarRun& run : report->runs) {
    SCOPED_TRACE(run.arm);
    EXPECT_EQ(run.tokens_per_s.size(), 2u);
    EXPECT_GT(run.median(), 0);
    EXPECT_GT(run.n_steps, 0);
    EXPECT_EQ(run.n_masks > 0, run.arm != "free");
    // Whether drafts pay, the engine finds out by itself; every accepted one is a token more.
    EXPECT_EQ(run.n_tokens, 3 * run.n_steps + run.n_accepted);
    EXPECT_EQ(run.n_accepted, run.n_drafts) << "the biases prefer what is drafted";
    if (run.arm != "drafts") {
      EXPECT_EQ(run.n_drafts, 0);
    }
  }
}

TEST_F(GrammarBench, writes_its_numbers) {
  options_.arms = {"free", "grammar"};
  ASSERT_EQ(grammar_bench_main(options_, "the command"), 0);
  const auto text = read_file(options_.json_file);
  ASSERT_TRUE(text);
  const auto written = json::parse(*text, "numbers");
  ASSERT_TRUE(written);
  EXPECT_EQ((*written)["runs"].size(), 2u);
  EXPECT_EQ((*written)["runs"][1]["arm"], "grammar");
}

TEST_F(GrammarBench, refuses_a_shape_without_a_fitting_tokenizer) {
  options_.tokenizer.clear();
  EXPECT_EQ(run_grammar_bench(options_).error().param, "tokenizer");
  options_.tokenizer = "demo";
  std::ofstream(shape_.folder() / "config.json") << R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 160,
      "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 64,
      "num_key_value_heads": 2, "max_position_embeddings": 2048, "torch_dtype": "float32", "eos_token_id": 2})";
  const auto report = run_grammar_bench(options_);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().param, "tokenizer");
}

}  // namespace
}  // namespace baton
