/// The flags of the datasets as rows.
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "bench/dataset/dataset.h"
#include "cli/options.h"

namespace baton {
namespace {

constexpr int kLongest = 1 << 22;
constexpr int kMostRequests = 10'000'000;

}  // namespace

void add_dataset_options(CLI::App& app, DatasetOptions& options) {
  const auto noted = [&](const char* flag, CLI::Option* option) {
    return option->group("Dataset")->each([&options, flag](const std::string&) { options.given.insert(flag); });
  };
  const auto row = [&](const char* flag, auto& value, const char* help) {
    CLI::Option* option = app.add_option(flag, value, help)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    return noted(flag, option->capture_default_str());
  };
  const auto length = [&](const char* flag, auto& value, const char* help, int least) {
    row(flag, value, help)->check(CLI::Range(least, kLongest));
  };
  const auto count = [&](const char* flag, std::int32_t& value, const char* help, int least) {
    row(flag, value, help)->check(CLI::Range(least, kMostRequests));
  };
  row("--dataset-name", options.name, "Where requests come from")->check(CLI::IsMember(choices(kDatasetNames)));
  row("--dataset-path", options.path,
      "sharegpt: ShareGPT_stat.csv (prompt and response lengths; tokens are drawn) or the conversations' JSON (text); mmlu: "
      "the "
      "folder with dev/ and test/; azure: a table TIMESTAMP,ContextTokens,GeneratedTokens; mooncake: JSON lines {timestamp, "
      "input_length, output_length, hash_ids}; custom: JSON lines {prompt | prompt_token_ids | messages, output_len or "
      "max_tokens (256), arrival_s}");
  count("--num-prompts", options.num_prompts, "Requests; 0: all of a file", 0);
  row("--seed", options.seed, "Seed of tokens, lengths, samples and order");
  length("--prefix-len", options.prefix_len, "Tokens of one system prompt in front of every request", 0);
  length("--input-len", options.input_len, "The same as --random-input-len", 0);
  length("--output-len", options.output_len, "Tokens that every request generates, in place of the dataset's number (not mmlu)",
         1);

  length("--random-input-len", options.random_input_len, "random: prompt tokens", 0);
  length("--random-output-len", options.random_output_len, "random: tokens to generate", 1);
  row("--random-range-ratio", options.random_range_ratio, "random: lengths vary uniformly by this share up and down")
      ->check(CLI::Range(0.0, 1.0));
  length("--random-prefix-len", options.random_prefix_len, "random: tokens of one prefix in front of all prompts", 0);

  length("--prefix-repetition-prefix-len", options.repetition_prefix_len, "prefix_repetition: tokens of each prefix", 0);
  length("--prefix-repetition-suffix-len", options.repetition_suffix_len, "prefix_repetition: tokens after it", 0);
  count("--prefix-repetition-num-prefixes", options.repetition_num_prefixes, "prefix_repetition: number of prefixes", 1);
  length("--prefix-repetition-output-len", options.repetition_output_len, "prefix_repetition: tokens to generate", 1);

  count("--gsp-num-groups", options.gsp_num_groups, "generated-shared-prefix: number of system prompts", 1);
  count("--gsp-prompts-per-group", options.gsp_prompts_per_group, "generated-shared-prefix: requests for each", 1);
  length("--gsp-system-prompt-len", options.gsp_system_prompt_len, "generated-shared-prefix: tokens of a system prompt", 0);
  length("--gsp-question-len", options.gsp_question_len, "generated-shared-prefix: tokens of a question", 0);
  length("--gsp-output-len", options.gsp_output_len, "generated-shared-prefix: tokens to generate", 1);
  noted("--gsp-ordered", app.add_flag("--gsp-ordered", options.gsp_ordered,
                                      "generated-shared-prefix: one group after another instead of in random order"));

  count("--num-users", options.num_users, "multi-turn: conversations", 1);
  count("--num-turns", options.num_turns, "multi-turn: questions in each", 1);
  length("--shared-system-prompt", options.shared_system_prompt, "multi-turn: tokens that all conversations begin with", 0);
  length("--user-history-prompt", options.user_history_prompt, "multi-turn: tokens of each user's own after them", 0);
  length("--question-len", options.question_len, "multi-turn: tokens of each question", 1);
  length("--answer-len", options.answer_len, "multi-turn: tokens of each answer", 1);

  row("--num-shots", options.num_shots, "mmlu: solved questions in front of each question")->check(CLI::Range(0, 100));
  row("--mmlu-prompt", options.mmlu_prompt, "mmlu: words around the questions, Hendrycks' or the RelayAttention authors'")
      ->check(CLI::IsMember(choices(kMmluPrompts)));
  row("--subjects", options.subjects, "mmlu: names separated by commas (default: all)");

  row("--speedup", options.speedup, "azure, mooncake, custom: arrivals this many times as fast as in the trace")
      ->check(CLI::Range(1e-6, 1e6));
}

}  // namespace baton
