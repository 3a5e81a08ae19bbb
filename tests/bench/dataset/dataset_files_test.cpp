/// Workloads of the published files, beside figures counted by other programs. They need BATON_TEST_DATA.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "bench/dataset/dataset.h"
#include "bench/dataset/workload_summary.h"

namespace baton {
namespace {

/// Unpacks a file of BATON_TEST_DATA into a folder of its own.
class PublishedFile {
 public:
  explicit PublishedFile(const std::string& archive) : folder_(::testing::TempDir() + "baton_dataset_files_test") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    const char* data = std::getenv("BATON_TEST_DATA");
    if (data == nullptr) {
      missing_ = "BATON_TEST_DATA is not set: the published file is not read";
      return;
    }
    const std::string from = std::string(data) + "/" + archive;
    const std::string name = std::filesystem::path(archive).stem().string();
    const std::string command = archive.ends_with(".tar.zst") ? "tar --zstd -xf '" + from + "' -C '" + folder_ + "'"
                                                              : "zstd -dqf '" + from + "' -o '" + folder_ + "/" + name + "'";
    if (std::system((command + " 2>/dev/null").c_str()) != 0) missing_ = archive + ", or the program zstd, is not there";
  }
  PublishedFile(const PublishedFile&) = delete;
  PublishedFile& operator=(const PublishedFile&) = delete;
  ~PublishedFile() { std::filesystem::remove_all(folder_); }

  /// Why the file cannot be read; empty if it can.
  const std::string& missing() const { return missing_; }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
  std::string missing_;
};

DatasetOptions all_of(std::string name, std::string path) {
  DatasetOptions options;
  options.name = std::move(name);
  options.path = std::move(path);
  options.num_prompts = 0;
  return options;
}

TEST(PublishedDatasets, sharegpt_lengths_are_all_taken) {
  const PublishedFile file("sharegpt/ShareGPT_stat.csv.zst");
  if (!file.missing().empty()) GTEST_SKIP() << file.missing();
  DatasetOptions options = all_of("sharegpt", file.path("ShareGPT_stat.csv"));
  const auto all = make_workload(options, {.n_vocab = 32000});
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->requests.size(), 82780u);
  EXPECT_EQ(all->prompt_tokens(), 20772942);
  EXPECT_EQ(all->output_tokens(), 19159987);
  options.num_prompts = 1000;
  const auto sample = make_workload(options, {.n_vocab = 32000});
  ASSERT_TRUE(sample);
  EXPECT_NEAR(summarize(*sample).prompt.mean, 250.9, 30) << "three standard errors of 1,000 requests";
  EXPECT_NEAR(summarize(*sample).output.mean, 231.5, 30);
}

TEST(PublishedDatasets, azure_has_an_hour_of_code) {
  const PublishedFile file("traces-azure-llm-2023/AzureLLMInferenceTrace_code.csv.zst");
  if (!file.missing().empty()) GTEST_SKIP() << file.missing();
  const auto workload = make_workload(all_of("azure", file.path("AzureLLMInferenceTrace_code.csv")), {.n_vocab = 32000});
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_EQ(workload->requests.size(), 8819u);
  EXPECT_EQ(workload->prompt_tokens(), 18059974);
  EXPECT_EQ(workload->output_tokens(), 245896);
  EXPECT_NEAR(summarize(*workload).arrivals_s, 3435.948056, 1e-4);
}

TEST(PublishedDatasets, mooncake_requests_share_what_their_hashes_say) {
  const PublishedFile file("traces-mooncake/conversation_trace.jsonl.zst");
  if (!file.missing().empty()) GTEST_SKIP() << file.missing();
  DatasetOptions options = all_of("mooncake", file.path("conversation_trace.jsonl"));
  options.num_prompts = 1000;
  const auto workload = make_workload(options, {.n_vocab = 128000});
  ASSERT_TRUE(workload) << workload.error().message;
  ASSERT_EQ(workload->requests.size(), 1000u);
  EXPECT_EQ(workload->prompt_tokens(), 13732944);
  std::int64_t shared = 0;
  for (const WorkloadRequest& request : workload->requests) shared += request.shared_len;
  // A token after the shared blocks is equal by chance once in 128,000 pairs.
  EXPECT_GE(shared, 4830044);
  EXPECT_LE(shared, 4830044 + 20);
  EXPECT_GE(std::ranges::min(workload->requests, {}, &WorkloadRequest::shared_len).shared_len, 512) << "all share a block";
}

TEST(PublishedDatasets, mmlu_has_all_questions_of_57_subjects_after_five_solved_ones) {
  const PublishedFile file("mmlu/mmlu_hendrycks_format.tar.zst");
  if (!file.missing().empty()) GTEST_SKIP() << file.missing();
  const auto tokenizer =
      Tokenizer::load_file(std::string(std::getenv("BATON_TEST_DATA")) + "/tokenizers/llama2/tokenizer.model");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  DatasetOptions options = all_of("mmlu", file.path("mmlu"));
  options.num_shots = 0;
  const auto all = make_workload(options, {.tokenizer = &*tokenizer});
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->requests.size(), 14042u);
  options.num_shots = 5;
  options.num_prompts = 1000;
  const auto workload = make_workload(options, {.tokenizer = &*tokenizer});
  ASSERT_TRUE(workload) << workload.error().message;
  std::map<std::string, std::int32_t> shared_lens;
  for (const WorkloadRequest& request : workload->requests) {
    std::int32_t& shared_len = shared_lens.try_emplace(request.subject, request.shared_len).first->second;
    shared_len = std::min(shared_len, request.shared_len);
    ASSERT_EQ(request.choices.size(), 4u);
    ASSERT_TRUE(request.right_token);
  }
  EXPECT_EQ(shared_lens.size(), 57u);
  EXPECT_EQ(shared_lens["world_religions"], 243);
  EXPECT_EQ(shared_lens["high_school_european_history"], 2754);
  std::string letters;
  for (const TokenId id : workload->requests[0].choices) letters += tokenizer->token_text(id);
  EXPECT_EQ(letters, "▁A▁B▁C▁D");

  // The authors' five solved questions have 379 to 2,895 tokens. After them every question of a subject begins with
  // the same words.
  options.mmlu_prompt = "relay-attention";
  options.num_prompts = 0;
  for (const auto& [subject, n_tokens] :
       std::map<std::string, std::int32_t>{{"world_religions", 379 + 28}, {"high_school_european_history", 2895 + 30}}) {
    options.subjects = subject;
    const auto theirs = make_workload(options, {.tokenizer = &*tokenizer});
    ASSERT_TRUE(theirs) << theirs.error().message;
    EXPECT_EQ(std::ranges::min(theirs->requests, {}, &WorkloadRequest::shared_len).shared_len, n_tokens);
  }
}

}  // namespace
}  // namespace baton
