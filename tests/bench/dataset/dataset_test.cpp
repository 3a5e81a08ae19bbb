/// Workloads of all datasets: lengths, what is shared, order, arrivals, and what is refused.
#include "bench/dataset/dataset.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "io/file.h"

namespace baton {
namespace {

constexpr DatasetContext kModel{.n_vocab = 1000};

DatasetOptions dataset(std::string name) {
  DatasetOptions options;
  options.name = std::move(name);
  return options;
}

std::string error_of(const DatasetOptions& options, const DatasetContext& context = kModel) {
  const auto workload = make_workload(options, context);
  return workload ? "" : workload.error().message;
}

/// A file of this test, removed with the object.
class TestFile {
 public:
  explicit TestFile(std::string_view text) : path_(::testing::TempDir() + "baton_dataset_test.txt") {
    EXPECT_TRUE(write_file(path_, text));
  }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;
  ~TestFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Requests by their first `length` tokens.
std::map<std::vector<TokenId>, int> groups_of(const Workload& workload, std::size_t length) {
  std::map<std::vector<TokenId>, int> groups;
  for (const WorkloadRequest& request : workload.requests)
    ++groups[{request.prompt.begin(), request.prompt.begin() + static_cast<std::ptrdiff_t>(length)}];
  return groups;
}

bool has_equal_prompts(const Workload& workload) {
  return groups_of(workload, workload.requests.front().prompt.size()).size() < workload.requests.size();
}

TEST(Dataset, random_has_the_lengths_and_the_prefix_it_is_given) {
  DatasetOptions options = dataset("random");
  options.num_prompts = 20;
  options.random_input_len = 30;
  options.random_prefix_len = 12;
  options.output_len = 7;
  const auto workload = make_workload(options, kModel);
  ASSERT_TRUE(workload) << workload.error().message;
  ASSERT_EQ(workload->requests.size(), 20u);
  EXPECT_EQ(workload->prompt_tokens(), 20 * 42);
  EXPECT_EQ(workload->output_tokens(), 20 * 7);
  EXPECT_FALSE(workload->has_arrivals);
  EXPECT_EQ(groups_of(*workload, 12).size(), 1u);
  EXPECT_FALSE(has_equal_prompts(*workload));
  for (const WorkloadRequest& request : workload->requests) EXPECT_EQ(request.shared_len, 12);
}

TEST(Dataset, random_lengths_stay_in_their_range_and_reach_its_ends) {
  DatasetOptions options = dataset("random");
  options.num_prompts = 500;
  options.input_len = 10;
  options.random_range_ratio = 0.25;
  options.random_output_len = 1;
  const auto workload = make_workload(options, kModel);
  ASSERT_TRUE(workload);
  const auto [low, high] =
      std::ranges::minmax(workload->requests, {}, [](const auto& request) { return request.prompt.size(); });
  EXPECT_EQ(low.prompt.size(), 7u);
  EXPECT_EQ(high.prompt.size(), 13u);
  EXPECT_TRUE(std::ranges::all_of(workload->requests, [](const auto& r) { return r.output_len == 1 || r.output_len == 2; }));
}

TEST(Dataset, the_same_seed_gives_the_same_tokens_and_another_one_others) {
  DatasetOptions options = dataset("prefix_repetition");
  options.num_prompts = 30;
  const auto first = make_workload(options, kModel);
  const auto again = make_workload(options, kModel);
  options.seed = 1;
  const auto other = make_workload(options, kModel);
  ASSERT_TRUE(first && again && other);
  bool is_same = true;
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(first->requests[i].prompt, again->requests[i].prompt);
    is_same &= first->requests[i].prompt == other->requests[i].prompt;
  }
  EXPECT_FALSE(is_same);
  // These numbers must never change: results of different days and machines are compared.
  options = dataset("random");
  options.num_prompts = 1;
  options.input_len = 4;
  const auto fixed = make_workload(options, kModel);
  ASSERT_TRUE(fixed);
  EXPECT_EQ(fixed->requests[0].prompt, (std::vector<TokenId>{451, 248, 767, 850}));
}

TEST(Dataset, drawn_tokens_leave_out_the_first_ids_unless_there_are_few) {
  DatasetOptions options = dataset("random");
  options.num_prompts = 1;
  options.input_len = 5000;
  const auto lowest = [&](std::int32_t n_vocab) {
    const auto workload = make_workload(options, {.n_vocab = n_vocab});
    return workload ? std::ranges::min(workload->requests[0].prompt) : -1;
  };
  EXPECT_EQ(lowest(100), 10);
  EXPECT_EQ(lowest(19), 0);
  EXPECT_NE(error_of(options, {}).find("--tokenizer"), std::string::npos);
}

TEST(Dataset, prefix_repetition_repeats_each_prefix_equally_often_in_random_order) {
  DatasetOptions options = dataset("prefix_repetition");
  options.num_prompts = 23;
  const auto workload = make_workload(options, kModel);
  ASSERT_TRUE(workload);
  ASSERT_EQ(workload->requests.size(), 23u);
  const auto groups = groups_of(*workload, 256);
  EXPECT_EQ(groups.size(), 10u);
  for (const auto& [prefix, n] : groups) EXPECT_TRUE(n == 2 || n == 3) << n;
  EXPECT_FALSE(has_equal_prompts(*workload));
  for (const WorkloadRequest& request : workload->requests) {
    EXPECT_EQ(request.prompt.size(), 512u);
    EXPECT_EQ(request.shared_len, 256);
    EXPECT_EQ(request.output_len, 128);
  }
  options.num_prompts = 9;
  EXPECT_NE(error_of(options).find("--prefix-repetition-num-prefixes"), std::string::npos);
  options.num_prompts = 10;
  const auto alone = make_workload(options, kModel);
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->requests[0].shared_len, 0) << "each prefix has one request";
}

TEST(Dataset, generated_shared_prefix_has_groups_shuffled_or_one_after_another) {
  DatasetOptions options = dataset("generated-shared-prefix");
  options.gsp_system_prompt_len = 64;
  const auto shuffled = make_workload(options, kModel);
  options.gsp_ordered = true;
  const auto ordered = make_workload(options, kModel);
  ASSERT_TRUE(shuffled && ordered);
  EXPECT_EQ(shuffled->requests.size(), 64u * 16u);
  EXPECT_EQ(shuffled->prompt_tokens(), 64 * 16 * (64 + 128));
  EXPECT_EQ(shuffled->output_tokens(), 64 * 16 * 256);
  for (const auto& [prefix, n] : groups_of(*ordered, 64)) EXPECT_EQ(n, 16);
  const auto changes = [](const Workload& workload) {
    int n = 0;
    for (std::size_t i = 1; i < workload.requests.size(); ++i)
      n += !std::equal(workload.requests[i].prompt.begin(), workload.requests[i].prompt.begin() + 64,
                       workload.requests[i - 1].prompt.begin());
    return n;
  };
  EXPECT_EQ(changes(*ordered), 63);
  EXPECT_GT(changes(*shuffled), 900);
  options.gsp_num_groups = 10'000'000;
  EXPECT_NE(error_of(options).find("--gsp-num-groups"), std::string::npos);
}

TEST(Dataset, turns_of_a_conversation_follow_each_other) {
  DatasetOptions options = dataset("multi-turn");
  options.num_users = 3;
  options.num_turns = 3;
  options.shared_system_prompt = 100;
  options.user_history_prompt = 50;
  options.prefix_len = 16;
  const auto workload = make_workload(options, kModel);
  ASSERT_TRUE(workload) << workload.error().message;
  ASSERT_EQ(workload->requests.size(), 9u);
  for (std::size_t i = 0; i < 9; ++i) {
    const WorkloadRequest& request = workload->requests[i];
    EXPECT_EQ(request.follows, i < 3 ? std::nullopt : std::optional(i - 3));
    EXPECT_EQ(request.prompt.size(), i < 3 ? 16u + 100 + 50 + 32 : 32u);
    EXPECT_EQ(request.shared_len, i < 3 ? 116 : 0);
    EXPECT_EQ(request.output_len, 100);
  }
}

TEST(Dataset, sharegpt_draws_a_sample_of_the_lengths_that_the_benchmark_takes) {
  const TestFile file("42,285\n3,50\n50,3\n1024,1024\n1025,10\n1000,1049\r\n\n7,8\n");
  DatasetOptions options = dataset("sharegpt");
  options.path = file.path();
  const auto all = make_workload(options, kModel);
  ASSERT_TRUE(all) << all.error().message;
  std::vector<std::pair<std::size_t, std::int32_t>> lengths;
  for (const WorkloadRequest& request : all->requests) lengths.emplace_back(request.prompt.size(), request.output_len);
  std::ranges::sort(lengths);
  EXPECT_EQ(lengths, (decltype(lengths){{7, 8}, {42, 285}, {1024, 1024}}));
  options.num_prompts = 2;
  const auto sample = make_workload(options, kModel);
  ASSERT_TRUE(sample);
  ASSERT_EQ(sample->requests.size(), 2u);
  EXPECT_EQ(sample->requests[0].prompt, all->requests[0].prompt) << "a smaller sample is the beginning of a larger one";
  options.num_prompts = 0;
  options.output_len = 5;
  const auto overridden = make_workload(options, kModel);
  ASSERT_TRUE(overridden);
  EXPECT_EQ(overridden->requests.size(), 5u) << "short answers and long sums do not count";
  EXPECT_EQ(overridden->output_tokens(), 25);
}

TEST(Dataset, files_that_cannot_be_read_are_named) {
  DatasetOptions options = dataset("sharegpt");
  EXPECT_NE(error_of(options).find("--dataset-path"), std::string::npos);
  options.path = "/nowhere/ShareGPT_stat.csv";
  EXPECT_NE(error_of(options).find("/nowhere/ShareGPT_stat.csv"), std::string::npos);
  for (const char* text : {"42,285\n17;3\n", "42,285\n17,\n", "42,285\n17,3,\n", "42,285\n-1,3\n"}) {
    const TestFile file(text);
    options.path = file.path();
    EXPECT_NE(error_of(options).find(file.path() + ", line 2:"), std::string::npos) << error_of(options);
  }
  const TestFile compressed("\x28\xb5\x2f\xfd nonsense");
  options.path = compressed.path();
  EXPECT_NE(error_of(options).find("unpack"), std::string::npos);
  const TestFile empty("");
  options.path = empty.path();
  EXPECT_NE(error_of(options).find("no requests"), std::string::npos);
}

TEST(Dataset, azure_has_the_arrivals_of_its_table) {
  const TestFile file("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.5,48,10\n2023-11-16 18:17:05.5,31,0\n");
  DatasetOptions options = dataset("azure");
  options.path = file.path();
  options.speedup = 4;
  const auto workload = make_workload(options, kModel);
  ASSERT_TRUE(workload) << workload.error().message;
  ASSERT_EQ(workload->requests.size(), 2u);
  EXPECT_TRUE(workload->has_arrivals);
  EXPECT_EQ(workload->requests[0].prompt.size(), 48u);
  EXPECT_DOUBLE_EQ(workload->requests[1].arrival_s, 0.5);
  EXPECT_EQ(workload->requests[1].output_len, 1) << "an engine generates one token at least";
  EXPECT_EQ(workload->requests[1].shared_len, 0);
}

TEST(Dataset, mooncake_blocks_with_equal_hashes_have_equal_tokens) {
  const TestFile file(
      "{\"timestamp\": 0, \"input_length\": 1500, \"output_length\": 5, \"hash_ids\": [7, 8, 9]}\n"
      "{\"timestamp\": 1000, \"input_length\": 1100, \"output_length\": 6, \"hash_ids\": [7, 8, 10]}\n"
      "{\"timestamp\": 2000, \"input_length\": 600, \"output_length\": 6, \"hash_ids\": [7, 11]}\n"
      "{\"timestamp\": 3000, \"input_length\": 700, \"output_length\": 6, \"hash_ids\": [12, 13]}\n");
  DatasetOptions options = dataset("mooncake");
  options.path = file.path();
  const auto workload = make_workload(options, kModel);
  ASSERT_TRUE(workload) << workload.error().message;
  std::vector<std::int32_t> shared, arrivals;
  for (const WorkloadRequest& request : workload->requests) {
    shared.push_back(request.shared_len);
    arrivals.push_back(static_cast<std::int32_t>(request.arrival_s));
  }
  // Drawn tokens after the shared blocks may be equal by chance, which is seen as shared.
  EXPECT_EQ(shared, (std::vector<std::int32_t>{1024, 1024, 512, 0}));
  EXPECT_EQ(arrivals, (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(workload->requests[0].prompt.size(), 1500u);
  options.num_prompts = 1;
  const auto one = make_workload(options, kModel);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->requests.size(), 1u);
  EXPECT_EQ(one->requests[0].shared_len, 0);
  const TestFile damaged("{\"timestamp\": 0, \"input_length\": 15}\n");
  options.path = damaged.path();
  EXPECT_NE(error_of(options).find("line 1"), std::string::npos);
}

TEST(Dataset, one_system_prompt_stands_in_front_of_every_request) {
  DatasetOptions options = dataset("prefix_repetition");
  options.num_prompts = 20;
  const auto without = make_workload(options, kModel);
  options.prefix_len = 40;
  const auto with = make_workload(options, kModel);
  ASSERT_TRUE(without && with);
  EXPECT_EQ(groups_of(*with, 40).size(), 1u);
  for (std::size_t i = 0; i < 20; ++i) {
    const auto& prompt = with->requests[i].prompt;
    EXPECT_EQ(std::vector<TokenId>(prompt.begin() + 40, prompt.end()), without->requests[i].prompt);
    EXPECT_EQ(with->requests[i].shared_len, 40 + 256);
  }
}

TEST(Dataset, requests_longer_than_the_model_takes_are_left_out_with_the_turns_after_them) {
  DatasetOptions options = dataset("multi-turn");
  options.num_users = 2;
  options.num_turns = 4;
  options.shared_system_prompt = 10;
  options.user_history_prompt = 8;
  const std::int32_t two_turns = 18 + 2 * (32 + 100);
  const auto workload = make_workload(options, {.n_vocab = 1000, .max_model_len = two_turns});
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_EQ(workload->requests.size(), 4u);
  EXPECT_EQ(workload->n_dropped, 4);
  EXPECT_EQ(workload->requests[3].follows, 1u);
  EXPECT_NE(error_of(options, {.n_vocab = 1000, .max_model_len = 149}).find("149 tokens"), std::string::npos);

  const TestFile file("42,10\n20,20\n30,15\n");
  options = dataset("sharegpt");
  options.path = file.path();
  const auto lengths = make_workload(options, {.n_vocab = 1000, .max_model_len = 45});
  ASSERT_TRUE(lengths);
  EXPECT_EQ(lengths->requests.size(), 2u);
  EXPECT_EQ(lengths->n_dropped, 1);
}

TEST(Dataset, more_tokens_than_memory_holds_are_refused_before_they_are_made) {
  DatasetOptions options = dataset("random");
  options.num_prompts = 10'000'000;
  EXPECT_NE(error_of(options).find("10240000000 prompt tokens"), std::string::npos);
  options.num_prompts = 1000;
  options.prefix_len = 4'000'000;
  EXPECT_NE(error_of(options).find("4001024000 prompt tokens"), std::string::npos);
  options = dataset("prefix_repetition");
  options.num_prompts = 10'000'000;
  EXPECT_NE(error_of(options).find("prompt tokens"), std::string::npos);
  options = dataset("multi-turn");
  options.num_users = 1'000'000;
  EXPECT_NE(error_of(options).find("3160000000 prompt tokens"), std::string::npos);
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += "{\"timestamp\": 0, \"input_length\": 60000000, \"output_length\": 5}\n";
  const TestFile file(lines);
  options = dataset("mooncake");
  options.path = file.path();
  EXPECT_NE(error_of(options).find("1200000000 prompt tokens"), std::string::npos);
}

TEST(Dataset, flags_that_a_dataset_does_not_read_are_refused) {
  const auto parsed = [](std::vector<std::string> words) {
    DatasetOptions options;
    CLI::App app;
    add_dataset_options(app, options);
    std::ranges::reverse(words);
    app.parse(words);
    return options;
  };
  EXPECT_EQ(error_of(parsed({"--dataset-name", "random", "--input-len", "8", "--num-prompts", "3"})), "");
  EXPECT_EQ(error_of(parsed({"--dataset-name", "random", "--gsp-ordered"})),
            "--gsp-ordered is not read by the dataset random, but by generated-shared-prefix");
  EXPECT_EQ(error_of(parsed({"--dataset-name", "multi-turn", "--num-prompts", "3"})).substr(0, 13), "--num-prompts");
  EXPECT_EQ(error_of(parsed({"--num-turns", "3"})).substr(0, 11), "--num-turns");
  EXPECT_THROW(parsed({"--dataset-name", "sonnet"}), CLI::ValidationError);
  EXPECT_NE(error_of(dataset("sonnet")).find("prefix_repetition"), std::string::npos);
  // Every flag that the benchmark has is either read by all datasets or in the table of datasets that read it.
  CLI::App app;
  DatasetOptions options;
  add_dataset_options(app, options);
  for (const CLI::Option* option : app.get_options()) {
    const std::string flag = option->get_name();
    if (flag == "--help" || flag == "--dataset-name" || flag == "--seed" || flag == "--prefix-len") continue;
    bool is_refused = false;
    for (const std::string_view name : kDatasetNames) {
      DatasetOptions given = dataset(std::string(name));
      given.given.insert(flag);
      is_refused |= error_of(given).starts_with(flag + " is not read");
    }
    EXPECT_TRUE(is_refused) << flag;
  }
}

}  // namespace
}  // namespace baton
