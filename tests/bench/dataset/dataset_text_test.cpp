/// Datasets of text, with the demo model's tokenizer: MMLU, ShareGPT's conversations, lines of the user's own.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bench/dataset/dataset.h"
#include "io/file.h"
#include "support/source_folder.h"

namespace baton {
namespace {

const Tokenizer& demo_tokenizer() {
  static const auto tokenizer = Tokenizer::load(test::source_folder() / "models/demo");
  return *tokenizer;
}

DatasetContext with_tokenizer() { return {.n_vocab = demo_tokenizer().n_vocab(), .tokenizer = &demo_tokenizer()}; }

std::string text_of_prompt(const WorkloadRequest& request) { return demo_tokenizer().decode(request.prompt, false); }

/// A folder of this test, removed with the object.
class TestFolder {
 public:
  TestFolder() : path_(::testing::TempDir() + "baton_dataset_text_test") { std::filesystem::create_directories(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }
  std::string add(const std::string& name, std::string_view text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    EXPECT_TRUE(write_file(path_ / name, text));
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

std::string text_error_of(const DatasetOptions& options, const DatasetContext& context = with_tokenizer()) {
  const auto workload = make_workload(options, context);
  return workload ? "" : workload.error().message;
}

class Mmlu : public ::testing::Test {
 protected:
  Mmlu() {
    folder_.add("dev/zoology_dev.csv", "Which purrs?,cat,dog,fish,bee,A\nWhich barks?,cat,dog,fish,bee,B\n");
    folder_.add("test/zoology_test.csv",
                "Which swims?,cat,dog,fish,bee,C\n\"Which \"\"hums\"\",\nor\nsings?\",cat,dog,fish,bee,D\r\n");
    folder_.add("dev/high_school_art_dev.csv", "Red?,1,2,3,4,D\nBlue?,1,2,3,4,C\n");
    folder_.add("test/high_school_art_test.csv", "Green?,1,2,3,4,B\n");
    options_.name = "mmlu";
    options_.path = folder_.path();
    options_.num_shots = 1;
  }
  TestFolder folder_;
  DatasetOptions options_;
};

TEST_F(Mmlu, asks_in_the_usual_form) {
  const auto workload = make_workload(options_, with_tokenizer());
  ASSERT_TRUE(workload) << workload.error().message;
  ASSERT_EQ(workload->requests.size(), 3u);
  EXPECT_EQ(text_of_prompt(workload->requests[0]),
            "The following are multiple choice questions (with answers) about high school art.\n\n"
            "Red?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer: D\n\nGreen?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:");
  EXPECT_TRUE(text_of_prompt(workload->requests[2])
                  .ends_with("Answer: A\n\nWhich \"hums\",\nor\nsings?\nA. cat\nB. dog\nC. fish\nD. bee\nAnswer:"));
}

TEST_F(Mmlu, knows_the_answer_and_what_a_subject_shares) {
  const auto workload = make_workload(options_, with_tokenizer());
  ASSERT_TRUE(workload);
  const WorkloadRequest& art = workload->requests[0];
  const WorkloadRequest& swims = workload->requests[1];
  const WorkloadRequest& hums = workload->requests[2];
  EXPECT_EQ(art.subject, "high_school_art");
  EXPECT_EQ(swims.subject, "zoology");
  EXPECT_EQ(art.shared_len, 0) << "a subject of one question";
  EXPECT_GT(swims.shared_len, 40);
  EXPECT_TRUE(std::equal(swims.prompt.begin(), swims.prompt.begin() + swims.shared_len, hums.prompt.begin()));
  std::string letters;
  for (const TokenId id : swims.choices) letters += demo_tokenizer().token_bytes(id);
  EXPECT_EQ(letters, " A B C D");
  EXPECT_EQ(swims.right_token, swims.choices[2]);
  EXPECT_EQ(hums.right_token, swims.choices[3]);
  EXPECT_EQ(swims.output_len, 1);
}

TEST_F(Mmlu, takes_shots_subjects_and_samples) {
  options_.subjects = "zoology";
  options_.num_shots = 0;
  const auto zoology = make_workload(options_, with_tokenizer());
  ASSERT_TRUE(zoology);
  ASSERT_EQ(zoology->requests.size(), 2u);
  EXPECT_TRUE(text_of_prompt(zoology->requests[0])
                  .ends_with("about zoology.\n\nWhich swims?\nA. cat\nB. dog\nC. fish\nD. bee\nAnswer:"));
  options_.subjects = "zoology,high_school_art";
  options_.num_prompts = 2;
  const auto sample = make_workload(options_, with_tokenizer());
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->requests.size(), 2u);
  EXPECT_TRUE(std::ranges::is_sorted(sample->requests, {}, &WorkloadRequest::subject));
}

TEST_F(Mmlu, asks_in_the_form_of_the_relay_attention_authors) {
  options_.mmlu_prompt = "relay-attention";
  options_.subjects = "zoology";
  const auto workload = make_workload(options_, with_tokenizer());
  ASSERT_TRUE(workload) << workload.error().message;
  const std::string lead =
      "There is a single choice question about zoology. Answer the question by replying A, B, C or D.\nQuestion: ";
  EXPECT_EQ(text_of_prompt(workload->requests[0]), lead + "Which purrs?\nA. cat\nB. dog\nC. fish\nD. bee\nAnswer: \nA\n\n" +
                                                       lead + "Which swims?\nA. cat\nB. dog\nC. fish\nD. bee\nAnswer: \n");
  EXPECT_EQ(demo_tokenizer().decode(workload->requests[0].choices, false), "ABCD");
  options_.mmlu_prompt = "cot";
  EXPECT_NE(text_error_of(options_).find("--mmlu-prompt cot: not one of hendrycks, relay-attention"), std::string::npos);
}

TEST_F(Mmlu, refuses_by_name) {
  EXPECT_NE(text_error_of(options_, {.n_vocab = 1000}).find("--tokenizer"), std::string::npos);
  options_.num_shots = 3;
  EXPECT_NE(text_error_of(options_).find("has 2 questions"), std::string::npos) << text_error_of(options_);
  options_.num_shots = 1;
  options_.subjects = "zoology,alchemy";
  EXPECT_NE(text_error_of(options_).find("--subjects alchemy: not one of high_school_art, zoology"), std::string::npos);
  options_.subjects = "zoology,";
  EXPECT_NE(text_error_of(options_).find("--subjects :"), std::string::npos);
  options_.subjects = "";
  const auto error_with = [&](const char* line) {
    folder_.add("test/zoology_test.csv", std::string("Which swims?,cat,dog,\"fish\nor\",bee,C\n") + line);
    return text_error_of(options_);
  };
  EXPECT_EQ(error_with("Which hums?,cat,dog,fish,bee,D"), "");
  for (const char* line :
       {"Which hums?,cat,dog,fish,D\n", "Which hums?,cat,dog,fish,bee,E\n", "Which?,a,b,c,d,AB\n", "\"Which?,a,b\n"})
    EXPECT_NE(error_with(line).find("test/zoology_test.csv, line 3: "), std::string::npos) << error_with(line);
  options_.path += "/dev";
  EXPECT_NE(text_error_of(options_).find("test/SUBJECT_test.csv"), std::string::npos);
  options_.path = "";
  EXPECT_NE(text_error_of(options_).find("--dataset-path"), std::string::npos);
}

std::string words(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += "word ";
  return text;
}

TEST(ShareGptText, samples_the_first_two_turns_of_conversations) {
  const TestFolder folder;
  DatasetOptions options;
  options.name = "sharegpt";
  options.path = folder.add(
      "conversations.json",
      "\n[ {\"id\": \"a\", \"conversations\": [{\"from\": \"human\", \"value\": \"What is [a \\\"list\\\"], }\\\\\"},"
      "{\"from\": \"gpt\", \"value\": \"A list is a row of things.\"}, {\"value\": 7}]},\n"
      "{\"id\": \"b\", \"conversations\": [{\"value\": \"alone in here\"}]}, {\"id\": \"c\", \"conversations\": []},\n{\"id\": "
      "\"d\"},"
      "{\"conversations\": [{\"value\": \"" +
          words(1030) +
          "\"}, {\"value\": \"much too long\"}]},"
          "{\"conversations\": [{\"value\": \"one two three four\"}, {\"value\": \"" +
          words(300) + "\"}]} ]");
  const auto workload = make_workload(options, with_tokenizer());
  ASSERT_TRUE(workload) << workload.error().message;
  ASSERT_EQ(workload->requests.size(), 2u);
  const auto& tokenizer = demo_tokenizer();
  const auto found =
      std::ranges::find(workload->requests, tokenizer.encode("What is [a \"list\"], }\\", true), &WorkloadRequest::prompt);
  ASSERT_NE(found, workload->requests.end());
  EXPECT_EQ(found->output_len, static_cast<std::int32_t>(tokenizer.encode("A list is a row of things.", true).size()));
  options.num_prompts = 1;
  options.output_len = 3;
  const auto one = make_workload(options, with_tokenizer());
  ASSERT_TRUE(one);
  EXPECT_EQ(one->requests.size(), 1u);
  EXPECT_EQ(one->output_tokens(), 3);
  EXPECT_NE(text_error_of(options, {.n_vocab = 1000}).find("--tokenizer"), std::string::npos);
}

TEST(ShareGptText, names_the_entry_at_fault) {
  const TestFolder folder;
  DatasetOptions options;
  options.name = "sharegpt";
  const auto error_with = [&](std::string_view text) {
    options.path = folder.add("conversations.json", text);
    return text_error_of(options);
  };
  EXPECT_NE(
      error_with("[{}, {\"conversations\": [{\"value\": 1}, {\"value\": \"\"}]}]").find("entry 2: 'value' must be a string"),
      std::string::npos);
  EXPECT_NE(error_with("[{}, {]").find("not closed"), std::string::npos);
  EXPECT_NE(error_with("[{\"a\": tru}]").find("entry 1"), std::string::npos);
  EXPECT_NE(error_with("[\"text\", {}, ]").find("entry"), std::string::npos);
  EXPECT_NE(error_with("[ ]").find("no requests"), std::string::npos);
}

class Custom : public ::testing::Test {
 protected:
  std::string error_with(std::string_view line, const DatasetContext& context = with_tokenizer()) {
    options_.path = folder_.add("lines.jsonl", "{\"prompt_token_ids\": [1, 2]}\n\n" + std::string(line) + "\n");
    return text_error_of(options_, context);
  }
  Custom() { options_.name = "custom"; }
  TestFolder folder_;
  DatasetOptions options_;
};

TEST_F(Custom, reads_texts_ids_and_messages) {
  options_.path = folder_.add("lines.jsonl",
                              "{\"prompt\": \"some text that is the same, and more\", \"max_tokens\": 7}\n"
                              "{\"prompt_token_ids\": [5, 6, 7], \"output_len\": 9}\r\n\n"
                              "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}\n"
                              "{\"prompt\": \"some text that is the same, or not\"}\n");
  const auto workload = make_workload(options_, with_tokenizer());
  ASSERT_TRUE(workload) << workload.error().message;
  ASSERT_EQ(workload->requests.size(), 4u);
  EXPECT_EQ(workload->requests[0].prompt, demo_tokenizer().encode("some text that is the same, and more", true));
  EXPECT_EQ(workload->requests[0].output_len, 7);
  EXPECT_EQ(workload->requests[1].prompt, (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(workload->requests[1].output_len, 9);
  EXPECT_EQ(text_of_prompt(workload->requests[2]), "<|bos|><|user|>hello<|end|><|assistant|>");
  EXPECT_EQ(workload->requests[2].output_len, 256);
  const auto shared = static_cast<std::int32_t>(demo_tokenizer().encode("some text that is the same,", true).size());
  EXPECT_EQ(workload->requests[0].shared_len, shared);
  EXPECT_EQ(workload->requests[3].shared_len, shared);
  EXPECT_FALSE(workload->has_arrivals);
  options_.num_prompts = 2;
  options_.output_len = 4;
  const auto two = make_workload(options_, with_tokenizer());
  ASSERT_TRUE(two);
  EXPECT_EQ(two->requests.size(), 2u);
  EXPECT_EQ(two->output_tokens(), 8);
}

TEST_F(Custom, a_system_prompt_stands_after_the_beginning_of_text) {
  options_.path =
      folder_.add("lines.jsonl", "{\"prompt\": \"<|bos|>first\"}\n{\"prompt\": \"<|bos|>second\"}\n{\"prompt\": \"third\"}\n");
  options_.prefix_len = 5;
  const auto workload = make_workload(options_, with_tokenizer());
  ASSERT_TRUE(workload);
  const auto& prompt = workload->requests[0].prompt;
  EXPECT_EQ(prompt.front(), demo_tokenizer().bos());
  EXPECT_EQ(demo_tokenizer().decode(std::span(prompt).subspan(6), false), "first");
  EXPECT_EQ(workload->requests[0].shared_len, 6);
  EXPECT_EQ(workload->requests[2].shared_len, 5);
  EXPECT_TRUE(std::equal(prompt.begin() + 1, prompt.begin() + 6, workload->requests[2].prompt.begin()));
}

TEST_F(Custom, sorts_by_arrival) {
  options_.path = folder_.add(
      "lines.jsonl", "{\"prompt_token_ids\": [5], \"arrival_s\": 3}\n{\"prompt_token_ids\": [6], \"arrival_s\": 0.5}\n");
  options_.speedup = 2;
  const auto workload = make_workload(options_, {.n_vocab = 8});
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_TRUE(workload->has_arrivals);
  EXPECT_EQ(workload->requests[0].prompt[0], 6);
  EXPECT_DOUBLE_EQ(workload->requests[0].arrival_s, 0.25);
  EXPECT_DOUBLE_EQ(workload->requests[1].arrival_s, 1.5);
}

TEST_F(Custom, names_the_line_at_fault) {
  EXPECT_EQ(error_with("{\"prompt\": \"a\"}"), "");
  const auto expect = [&](std::string_view line, std::string_view reason) {
    const std::string error = error_with(line);
    EXPECT_NE(error.find("lines.jsonl, line 3: "), std::string::npos) << error;
    EXPECT_NE(error.find(reason), std::string::npos) << error;
  };
  expect("{\"prompt\": \"a\", \"temperature\": 1}", "temperature");
  expect("{\"max_tokens\": 4}", "one of prompt");
  expect("{\"prompt\": \"a\", \"prompt_token_ids\": [4]}", "one of prompt");
  expect("{\"prompt_token_ids\": [4, 99999999]}", "99999999");
  expect("{\"prompt_token_ids\": [-1]}", "-1");
  expect("{\"prompt_token_ids\": \"4\"}", "prompt_token_ids");
  expect("{\"prompt\": \"a\", \"max_tokens\": 0}", "0 tokens");
  expect("{\"prompt\": \"a\", \"max_tokens\": 4, \"output_len\": 4}", "give one");
  expect("{\"prompt\": \"a\", \"arrival_s\": 4}", "arrival_s");
  expect("{\"messages\": {}}", "messages");
  expect("[1, 2]", "object");
  expect("{oops", "the line is not valid JSON");
  EXPECT_NE(error_with("{\"prompt\": \"a\"}", {.n_vocab = 1000}).find("--tokenizer"), std::string::npos);
}

TEST(DatasetTokenizer, drawn_tokens_are_never_special_ones) {
  DatasetOptions options;
  options.num_prompts = 20;
  options.input_len = 2000;
  const auto workload = make_workload(options, with_tokenizer());
  ASSERT_TRUE(workload);
  for (const WorkloadRequest& request : workload->requests)
    for (const TokenId id : request.prompt) {
      ASSERT_TRUE(demo_tokenizer().contains(id));
      ASSERT_FALSE(demo_tokenizer().is_special(id));
    }
  const auto without_size = make_workload(options, {.tokenizer = &demo_tokenizer()});
  ASSERT_TRUE(without_size);
  EXPECT_EQ(without_size->requests[3].prompt, workload->requests[3].prompt);
}

}  // namespace
}  // namespace baton
