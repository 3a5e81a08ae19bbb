/// The ablation benchmark on a model small enough for a test: its numbers, and what it refuses.
#include "bench/offline/ablation_bench.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "io/file.h"
#include "io/json.h"
#include "support/tiny_shape.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

class AblationBench : public ::testing::Test {
 protected:
  AblationBench() {
    options_.shape = shape_.folder().string();
    options_.model.threads = 1;
    options_.model.max_num_seqs = 4;
    options_.n_runs = 1;
    options_.dataset.num_prompts = 8;
    options_.dataset.random_input_len = 20;
    options_.dataset.random_output_len = 5;
    options_.json_file = (shape_.folder() / "numbers.json").string();
  }
  const test::TinyShape shape_{"ablation_bench"};
  AblationBenchOptions options_;
};

TEST_F(AblationBench, gives_the_same_answers_with_each_habit) {
  options_.arms = {"baton", "sample-each", "copy-each"};
  ASSERT_EQ(ablation_bench_main(options_, "the command"), 0);
  const auto text = read_file(options_.json_file);
  ASSERT_TRUE(text);
  const auto written = json::parse(*text, "numbers");
  ASSERT_TRUE(written);
  EXPECT_EQ((*written)["num_equal_answers"], 8);
  EXPECT_EQ((*written)["num_compared_answers"], 8);
  EXPECT_EQ((*written)["makes_text"], false);
  ASSERT_EQ((*written)["arms"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*written)["arms"][i]["arm"], options_.arms[i]);
    EXPECT_EQ((*written)["arms"][i]["total_output_tokens"], 8 * 5);
  }
}

TEST_F(AblationBench, makes_text_in_every_arm_if_there_is_a_tokenizer) {
  options_.tokenizer = "demo";
  ASSERT_EQ(ablation_bench_main(options_, "the command"), 0);
  const auto written = json::parse(*read_file(options_.json_file), "numbers");
  ASSERT_TRUE(written);
  EXPECT_EQ((*written)["makes_text"], true);
  EXPECT_EQ((*written)["num_equal_answers"], 8);
  EXPECT_EQ((*written)["arms"].size(), kAblationArms.size());
}

TEST_F(AblationBench, refuses_arms_that_make_text_without_a_tokenizer) {
  EXPECT_EQ(ablation_bench_main(options_, "the command"), 1);
  EXPECT_FALSE(fs::exists(options_.json_file));
}

}  // namespace
}  // namespace baton
