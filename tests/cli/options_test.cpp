#include "cli/options.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <utility>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "core/log.h"

namespace baton {
namespace {

/// A program with the model flags, after parsing `words`.
struct Parsed {
  ModelFlags options;
  CLI::App app{"test"};

  explicit Parsed(std::vector<std::string> words) {
    app.allow_extras();
    add_model_options(app, options);
    name_environment_variables(app);
    refuse_not_a_number(app);
    std::reverse(words.begin(), words.end());
    app.parse(words);
  }
};

TEST(Options, sizes_take_k_m_and_g) {
  EXPECT_EQ(parse_bytes("512", "--x").value(), 512);
  EXPECT_EQ(parse_bytes("4K", "--x").value(), 4096);
  EXPECT_EQ(parse_bytes("1.5G", "--x").value(), 3LL << 29);
  EXPECT_EQ(parse_bytes("2gib", "--x").value(), 2LL << 30);
  for (const char* wrong : {"", "x", "-1", "5T", "1e3", "99999999999999999999"}) {
    const auto parsed = parse_bytes(wrong, "--kv-cache-memory-bytes");
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_NE(parsed.error().message.find("--kv-cache-memory-bytes"), std::string::npos);
  }
}

/// The parser's error for words that it refuses.
std::string refusal(std::vector<std::string> words) {
  try {
    Parsed{std::move(words)};
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Options, nan_is_no_value) {
  for (const char* text : {"nan", "NaN", "-nan", "nan(1)"})
    EXPECT_EQ(refusal({"--gpu-memory-utilization", text}),
              "--gpu-memory-utilization: '" + std::string(text) + "' is not a number");
  EXPECT_EQ(refusal({"--gpu-memory-utilization", "0.5"}), "accepted");
  EXPECT_EQ(refusal({"--step-timeout", "nan"}), "--step-timeout: 'nan' is not a number");
}

TEST(Options, sizes_and_speculation_are_values_when_they_are_parsed) {
  EXPECT_EQ(Parsed({}).options.kv_cache_memory_bytes, 0);
  EXPECT_EQ(Parsed({"--kv-cache-memory-bytes", "1M", "--kv-cache-memory-bytes", "4K"}).options.kv_cache_memory_bytes, 4096);
  EXPECT_EQ(refusal({"--kv-cache-memory-bytes", "4X"}),
            "--kv-cache-memory-bytes 4X: not a size; write a number with K, M, G or nothing behind it");
  EXPECT_EQ(Parsed({}).options.speculation, SpeculationOptions{});
  const SpeculationOptions asked{.n_tokens = 3, .lookup_max = 4, .lookup_min = 2};
  EXPECT_EQ(Parsed({"--speculative-config", R"({"num_speculative_tokens": 3})"}).options.speculation, asked);
  for (const char* wrong : {"ngram", "4", R"({"method": "eagle"})"})
    EXPECT_NE(refusal({"--speculative-config", wrong}).find("--speculative-config"), std::string::npos) << wrong;
}

TEST(Options, model_is_the_first_word_or_a_flag) {
  EXPECT_EQ(Parsed({"org/name", "--max-num-seqs", "7"}).options.model, "org/name");
  EXPECT_EQ(Parsed({"--model", "folder"}).options.model, "folder");
  EXPECT_EQ(Parsed({}).options.model, "");
  EXPECT_FALSE(Parsed({"--no-enable-prefix-caching"}).options.enable_prefix_caching);
  EXPECT_THROW(Parsed({"--attention", "cascade"}), CLI::ParseError);
  EXPECT_THROW(Parsed({"--max-num-seqs", "0"}), CLI::ParseError);
}

TEST(Options, the_level_of_the_log_is_what_the_flag_says) {
  use_log_level(Parsed({"--log-level", "error"}).options);
  EXPECT_FALSE(log::is_enabled(log::Level::warning));
  EXPECT_TRUE(log::is_enabled(log::Level::error));
  use_log_level(Parsed({}).options);
  EXPECT_TRUE(log::is_enabled(log::Level::info));
  EXPECT_FALSE(log::is_enabled(log::Level::debug));
}

TEST(Options, the_environment_stands_behind_the_command_line) {
  setenv("BATON_MAX_NUM_SEQS", "33", 1);
  EXPECT_EQ(Parsed({}).options.max_num_seqs, 33);
  EXPECT_EQ(Parsed({"--max-num-seqs", "5"}).options.max_num_seqs, 5);
  unsetenv("BATON_MAX_NUM_SEQS");
}

TEST(Options, flags_that_say_what_baton_does_anyway_are_taken) {
  const auto rest = without_neutral_flags(
      {"--enable-chunked-prefill", "--pipeline-parallel-size", "1", "org/name", "-dp=1", "--async-scheduling", "--seed", "3"});
  ASSERT_TRUE(rest) << rest.error().message;
  EXPECT_EQ(*rest, (std::vector<std::string>{"org/name", "--seed", "3"}));
  const auto refused = without_neutral_flags({"-pp", "2"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "-pp 2: only 1 is supported");
}

TEST(Options, tp_is_short_for_tensor_parallel_size) {
  EXPECT_EQ(without_neutral_flags({"org/name", "-tp", "2"}).value(),
            (std::vector<std::string>{"org/name", "--tensor-parallel-size", "2"}));
  EXPECT_EQ(without_neutral_flags({"-tp=4"}).value(), (std::vector<std::string>{"--tensor-parallel-size=4"}));
}

TEST(Options, other_flags_are_refused_with_the_nearest_there_is) {
  const Parsed misspelt({"org/name", "--max-num-seq", "4"});
  const auto refused = refuse_unknown_flags(misspelt.app, misspelt.app.remaining());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "unknown flag --max-num-seq; the nearest there is: --max-num-seqs");
  const Parsed two({"a", "b"});
  ASSERT_FALSE(refuse_unknown_flags(two.app, two.app.remaining()));
  EXPECT_TRUE(refuse_unknown_flags(two.app, {}));
}

TEST(Options, the_command_line_wins_over_the_file) {
  const std::string file = ::testing::TempDir() + "baton_options_test.yaml";
  std::ofstream(file) << "model: from/file\nmax-num-seqs: 9\nblock-size: 32\nbatch-invariant: true\nenable-prefix-caching: "
                         "false\nprefix: [a=b, c=d]\n";
  const auto words = with_config_file({"mine", "--config", file, "--max-num-seqs", "4"});
  ASSERT_TRUE(words) << words.error().message;
  const Parsed parsed(*words);
  EXPECT_EQ(parsed.options.model, "mine");
  EXPECT_EQ(parsed.options.max_num_seqs, 4);
  EXPECT_EQ(parsed.options.block_size, 32);
  EXPECT_TRUE(parsed.options.batch_invariant);
  EXPECT_FALSE(parsed.options.enable_prefix_caching);
  EXPECT_EQ(parsed.options.prefixes, (std::vector<std::string>{"a=b", "c=d"}));
  EXPECT_EQ(Parsed(with_config_file({"--config", file}).value()).options.model, "from/file");
  std::ofstream(file) << "- a\n- b\n";
  EXPECT_FALSE(with_config_file({"--config", file}));
  std::ofstream(file) << "a: [1\n";
  EXPECT_FALSE(with_config_file({"--config", file}));
}

}  // namespace
}  // namespace baton
