#include "cli/options.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <utility>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "cli/flags/environment.h"
#include "core/log.h"
#include "engine/engine_options.h"

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

TEST(Options, counts_take_k_m_and_g) {
  EXPECT_EQ(parse_count("512").value(), 512);
  EXPECT_EQ(parse_count("4k").value(), 4096);
  EXPECT_EQ(parse_count("32K").value(), 32768);
  EXPECT_EQ(parse_count("1M").value(), 1 << 20);
  EXPECT_EQ(parse_count("1.5k").value(), 1536);
  for (const char* wrong : {"", "k", ".", "1.2.3", "-1", "4kb", "1.3", "4 k", "0x10", "1e3", "auto", "99999999999999999999"})
    EXPECT_FALSE(parse_count(wrong)) << wrong;
}

TEST(Options, lengths_are_written_as_vllm_takes_them) {
  const auto max_model_len = [](const char* text) { return Parsed({"--max-model-len", text}).options.max_model_len; };
  EXPECT_EQ(max_model_len("4096"), 4096);
  EXPECT_EQ(max_model_len("4k"), 4096);
  EXPECT_EQ(max_model_len("32K"), 32768);
  EXPECT_EQ(max_model_len("1M"), 1 << 20);
  EXPECT_EQ(max_model_len("0"), 0);
  EXPECT_EQ(max_model_len("auto"), kFittingLength);
  EXPECT_EQ(max_model_len("-1"), kFittingLength);
  EXPECT_EQ(Parsed({"--max-num-batched-tokens=8k"}).options.max_num_batched_tokens, 8192);
  EXPECT_EQ(Parsed({"--max-num-seqs", "1k"}).options.max_num_seqs, 1024);
}

TEST(Options, a_number_that_is_none_is_named_in_a_short_sentence) {
  for (const char* flag :
       {"--max-model-len", "--max-num-seqs", "--max-num-batched-tokens", "--max-prefill-tokens", "--threads",
        "--max-num-queued-reqs", "--max-pinned-blocks", "--step-timeout", "--kv-offloading-size", "--seed"}) {
    const std::string refused = refusal({flag, "4x"});
    EXPECT_TRUE(refused.find("4x") != std::string::npos && refused.find(flag) != std::string::npos) << refused;
    EXPECT_LT(refused.size(), 160u) << refused;
  }
  for (const char* flag : {"--max-prefill-tokens", "--threads", "--max-num-queued-reqs"})
    EXPECT_LT(refusal({flag, "-1"}).size(), 160u);
}

TEST(Options, nan_is_no_value) {
  for (const char* text : {"nan", "NaN", "-nan", "nan(1)"})
    EXPECT_EQ(refusal({"--gpu-memory-utilization", text}),
              "--gpu-memory-utilization: '" + std::string(text) + "' is not a number");
  EXPECT_EQ(refusal({"--gpu-memory-utilization", "0.5"}), "accepted");
  EXPECT_EQ(refusal({"--step-timeout", "nan"}), "--step-timeout: 'nan' is not a number");
}

TEST(Options, sizes_and_speculation_are_values_when_they_are_parsed) {
  EXPECT_EQ(Parsed({}).options.kv_cache_bytes, 0);
  EXPECT_EQ(Parsed({"--kv-cache-memory-bytes", "1M", "--kv-cache-memory-bytes", "4K"}).options.kv_cache_bytes, 4096);
  EXPECT_EQ(Parsed({"--state-cache-memory-bytes", "2K"}).options.snapshot_bytes, 2048);
  EXPECT_FALSE(Parsed({}).options.snapshot_bytes.has_value());
  EXPECT_EQ(Parsed({"--state-snapshot-interval", "2k"}).options.state_snapshot_interval, 2048);
  EXPECT_EQ(Parsed({}).options.state_snapshot_interval, 0);
  EXPECT_EQ(Parsed({}).options.state_cache_dtype, "auto");
  for (const char* flag : {"--state-cache-dtype", "--mamba-ssm-cache-dtype"})
    EXPECT_EQ(Parsed({flag, "bfloat16"}).options.state_cache_dtype, "bfloat16");
  EXPECT_EQ(refusal({"--kv-cache-memory-bytes", "4X"}),
            "--kv-cache-memory-bytes 4X: not a size; write a number with K, M, G or nothing after it");
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

TEST(Options, the_environment_stands_after_the_command_line) {
  setenv("BATON_MAX_NUM_SEQS", "33", 1);
  EXPECT_EQ(Parsed({}).options.max_num_seqs, 33);
  EXPECT_EQ(Parsed({"--max-num-seqs", "5"}).options.max_num_seqs, 5);
  unsetenv("BATON_MAX_NUM_SEQS");
}

TEST(Options, other_flags_are_refused_with_the_nearest_there_is) {
  const Parsed misspelt({"org/name", "--max-num-seq", "4"});
  const auto refused = refuse_unknown_flags(misspelt.app, misspelt.app.remaining());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "unknown flag --max-num-seq; the nearest there is: --max-num-seqs");
  for (const char* far : {"--hf-overrides", "--lora-modules", "--enable-sleep-mode"}) {
    const Parsed unknown({"org/name", far});
    EXPECT_EQ(refuse_unknown_flags(unknown.app, unknown.app.remaining()).error().message,
              "unknown flag " + std::string(far) + "; --help lists those there are");
  }
  const Parsed two({"a", "b"});
  ASSERT_FALSE(refuse_unknown_flags(two.app, two.app.remaining()));
  EXPECT_TRUE(refuse_unknown_flags(two.app, {}));
}

TEST(Options, the_last_of_several_values_of_a_flag_counts_whichever_name_it_has) {
  const std::vector<std::string> names = {"--state-cache-dtype", "float32", "--mamba-ssm-cache-dtype=bfloat16"};
  const Parsed two_names(names);
  EXPECT_EQ(two_names.options.state_cache_dtype, "bfloat16");
  EXPECT_EQ(repeated_flags(two_names.app, names),
            (std::vector<std::string>{
                "flag=--mamba-ssm-cache-dtype effect=last reason=\"another name of --state-cache-dtype, given 2 "
                "times; the last one counts\""}));
  const std::vector<std::string> turned = {"--mamba-ssm-cache-dtype", "bfloat16", "--state-cache-dtype", "float32"};
  EXPECT_EQ(Parsed(turned).options.state_cache_dtype, "float32");
  const std::vector<std::string> once = {"org/name", "--block-size", "32",       "--block-size", "64",
                                         "--prefix", "a=b",          "--prefix", "c=d"};
  EXPECT_EQ(Parsed(once).options.block_len, 64);
  EXPECT_EQ(repeated_flags(two_names.app, once),
            (std::vector<std::string>{"flag=--block-size effect=last reason=\"given 2 times; the last one counts\""}));
  EXPECT_TRUE(repeated_flags(two_names.app, {"org/name", "--block-size", "32"}).empty());
  const std::vector<std::string> switches = {"--no-enable-prefix-caching", "--enable-prefix-caching"};
  EXPECT_TRUE(Parsed(switches).options.enable_prefix_caching);
  EXPECT_EQ(repeated_flags(two_names.app, switches).size(), 1u);
}

TEST(Options, the_command_line_wins_over_the_file) {
  const std::string file = ::testing::TempDir() + "baton_options_test.yaml";
  std::ofstream(file) << "model: from/file\nmax-num-seqs: 9\nblock-size: 32\nbatch-invariant: true\nenable-prefix-caching: "
                         "false\nprefix: [a=b, c=d]\n";
  const auto words = with_config_file({"mine", "--config", file, "--max-num-seqs", "4"});
  ASSERT_TRUE(words) << words.error().message;
  const Parsed parsed(words->words);
  EXPECT_EQ(parsed.options.model, "mine");
  EXPECT_EQ(words->model, "from/file");
  EXPECT_EQ(words->file, file);
  EXPECT_EQ(words->flags[1], "--max-num-seqs");
  EXPECT_EQ(parsed.options.max_num_seqs, 4);
  EXPECT_EQ(parsed.options.block_len, 32);
  EXPECT_TRUE(parsed.options.batch_invariant);
  EXPECT_FALSE(parsed.options.enable_prefix_caching);
  EXPECT_EQ(parsed.options.prefixes, (std::vector<std::string>{"a=b", "c=d"}));
  std::ofstream(file) << "- a\n- b\n";
  EXPECT_FALSE(with_config_file({"--config", file}));
  std::ofstream(file) << "a: [1\n";
  EXPECT_FALSE(with_config_file({"--config", file}));
  for (const char* const no_flags : {"", "# port: 8001\n", "---\n"}) {
    std::ofstream(file) << no_flags;
    const auto none = with_config_file({"--config", file});
    ASSERT_TRUE(none) << none.error().message;
    EXPECT_EQ(none->words, (std::vector<std::string>{"--config", file}));
  }
}

TEST(Options, two_keys_of_a_file_for_one_flag_are_refused) {
  const std::string file = ::testing::TempDir() + "baton_options_twice_test.yaml";
  Parsed program({});
  const auto refusal_of = [&](const char* text) {
    std::ofstream(file) << text;
    const auto name_of = [&](const std::string& flag) {
      const CLI::Option* const option = find_option(program.app, flag);
      return option == nullptr ? flag : option->get_name();
    };
    const auto words = with_config_file({"--config", file}, name_of);
    return words ? std::string("none") : words.error().message.substr(file.size());
  };
  EXPECT_EQ(refusal_of("state-cache-dtype: float32\nseed: 3\nmamba-ssm-cache-dtype: float32\n"),
            ": state-cache-dtype and mamba-ssm-cache-dtype are two names of one flag; keep one of them");
  EXPECT_EQ(refusal_of("enable-prefix-caching: true\nno-enable-prefix-caching: true\n"),
            ": enable-prefix-caching and no-enable-prefix-caching are two names of one flag; keep one of them");
  EXPECT_EQ(refusal_of("seed: 3\nseed: 4\n"), ": seed is there twice");
  EXPECT_EQ(refusal_of("seed: 3\nstate-cache-dtype: float32\nmodel: x\n"), "none");
}

}  // namespace
}  // namespace baton
