/// The MMLU benchmark with the demo model and made-up questions: equal answers, accuracy, its report and flags.
#include "bench/offline/mmlu_bench.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

namespace baton {
namespace {

namespace fs = std::filesystem;

class MmluBench : public ::testing::Test {
 protected:
  MmluBench() {
    folder_ = fs::path(::testing::TempDir()) / "baton_mmlu_bench";
    write("dev/zoology_dev.csv", 2);
    write("dev/botany_dev.csv", 2);
    write("test/zoology_test.csv", 5);
    write("test/botany_test.csv", 3);
    options_.model.threads = 1;
    options_.model.max_num_seqs = 4;
    options_.model.max_num_batched_tokens = 256;
    options_.model.batch_invariant = true;
    options_.dataset.path = folder_.string();
    options_.shots = {1, 2};
    options_.n_runs = 2;
  }
  ~MmluBench() override { fs::remove_all(folder_); }

  void write(const std::string& name, int n_questions) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream file(folder_ / name);
    for (int i = 0; i < n_questions; ++i)
      file << "How many legs has animal " << i << " of " << name << "?,one,two,three,\"four, or more\","
           << "ABCD"[i % 4] << '\n';
  }

  fs::path folder_;
  MmluBenchOptions options_;
};

TEST_F(MmluBench, gives_equal_answers_in_all_arms_for_each_number_of_shots) {
  const auto report = run_mmlu_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  const json::Value written = mmlu_json(*report, options_, "the command");
  EXPECT_EQ(written["model"], "demo");
  ASSERT_EQ(written["shots"].size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const json::Value& runs = written["shots"][i];
    EXPECT_EQ(runs["num_shots"], options_.shots[i]);
    EXPECT_EQ(runs["equal_answers"], true);
    EXPECT_EQ(runs["num_unequal_answers"], 0);
    EXPECT_EQ(runs["num_compared_answers"], 8);
    ASSERT_EQ(runs["arms"].size(), 3u);
    for (const json::Value& arm : runs["arms"]) {
      EXPECT_EQ(arm["num_requests"], 8);
      EXPECT_EQ(arm["total_output_tokens"], 8);
      EXPECT_EQ(arm["elapsed_times"].size(), 2u);
      const json::Value& subjects = arm["accuracy_by_subject"];
      EXPECT_EQ(subjects["zoology"]["questions"], 5);
      EXPECT_EQ(subjects["botany"]["questions"], 3);
      const auto n_right = subjects["zoology"]["right"].get<double>() + subjects["botany"]["right"].get<double>();
      EXPECT_DOUBLE_EQ(arm["accuracy"].get<double>(), n_right / 8);
    }
    EXPECT_GT(runs["arms"][0]["prefix_hit_rate"], 0);
    EXPECT_EQ(runs["arms"][2]["prefix_hit_rate"], 0);
  }
  EXPECT_LT(written["shots"][0]["arms"][0]["total_input_tokens"], written["shots"][1]["arms"][0]["total_input_tokens"]);
  const std::string text = mmlu_text(*report, options_, "the command");
  for (const char* part : {"the command\nbaton ", "| 1 | relay | ", "| 2 | unshared | ",
                           "| subject | questions | right, 1-shot | ", "| all | 8 | ", "| botany | 3 | ", "| zoology | 5 | "})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  EXPECT_EQ(text.find("Random weights"), std::string::npos);
}

TEST_F(MmluBench, refuses_questions_without_a_tokenizer) {
  options_.shape = "110m";
  const auto report = run_mmlu_bench(options_);
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message.find("--tokenizer"), std::string::npos) << report.error().message;
}

TEST_F(MmluBench, says_that_what_random_weights_answer_is_chance) {
  const fs::path shape = folder_ / "shape";
  fs::create_directories(shape);
  std::ofstream(shape / "config.json") << R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 4096,
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 64,
    "num_key_value_heads": 4, "max_position_embeddings": 2048, "torch_dtype": "float32"})";
  options_.shape = shape.string();
  options_.tokenizer = "demo";
  options_.shots = {1};
  options_.dataset.subjects = "botany";
  const auto report = run_mmlu_bench(options_);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_NE(mmlu_text(*report, options_, "command").find("Random weights: what is right is chance."), std::string::npos);
  options_.model.kv_cache_bytes = 1 << 10;
  const auto shortage = run_mmlu_bench(options_);
  ASSERT_TRUE(shortage) << shortage.error().message;
  EXPECT_EQ(mmlu_json(*shortage, options_, "command")["arms"][2]["bytes_available"], 1 << 10);
}

TEST(MmluAccuracy, counts_the_right_letters_of_finished_questions) {
  Workload workload;
  for (const char* subject : {"law", "law", "art", "art"})
    workload.requests.push_back({.prompt = {1}, .subject = subject, .right_token = 65});
  OfflineResult run;
  run.answers = {{65}, {66}, {65}, {}};
  const auto accuracy = accuracy_of(workload, run);
  EXPECT_EQ(accuracy.at("").n_questions, 3);
  EXPECT_EQ(accuracy.at("").n_right, 2);
  EXPECT_DOUBLE_EQ(accuracy.at("law").share(), 0.5);
  EXPECT_EQ(accuracy.at("art").n_questions, 1);
  EXPECT_EQ(accuracy_of({}, {}).at("").share(), 0);
}

TEST(MmluBenchFlags, take_several_numbers_of_shots) {
  MmluBenchOptions options;
  CLI::App app{"test"};
  add_mmlu_bench_options(app, options);
  std::vector<std::string> words{"--dataset-path", "/tmp",    "--num-shots",   "1,3,5",
                                 "--subjects",     "law,art", "--num-prompts", "9"};
  std::reverse(words.begin(), words.end());
  app.parse(words);
  EXPECT_EQ(options.shots, (std::vector<std::int32_t>{1, 3, 5}));
  EXPECT_EQ(options.dataset.subjects, "law,art");
  EXPECT_EQ(options.dataset.num_prompts, 9);
  EXPECT_EQ(options.dataset.name, "mmlu");
}

}  // namespace
}  // namespace baton
