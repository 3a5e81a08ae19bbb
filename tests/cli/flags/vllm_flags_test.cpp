/// Flags of vLLM that change nothing (cli/flags/vllm_flags.h, without_neutral_flags).
#include "cli/flags/vllm_flags.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "io/file.h"
#include "support/source_folder.h"

namespace baton {
namespace {

TEST(VllmFlags, flags_that_say_what_baton_does_anyway_are_taken) {
  const auto rest = without_neutral_flags(
      {"--enable-chunked-prefill", "--pipeline-parallel-size", "1", "org/name", "-dp=1", "--async-scheduling", "--seed", "3"});
  ASSERT_TRUE(rest) << rest.error().message;
  EXPECT_EQ(*rest, (std::vector<std::string>{"org/name", "--seed", "3"}));
  const auto refused = without_neutral_flags({"-pp", "2"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "-pp 2: only 1 is supported: one device");
}

TEST(VllmFlags, command_lines_written_for_vllm_start_where_their_flags_change_nothing) {
  const auto rest = without_neutral_flags({"org/name",
                                           "--trust-remote-code",
                                           "--tokenizer",
                                           "org/name",
                                           "--disable-log-stats",
                                           "--swap-space=4",
                                           "--uvicorn-log-level",
                                           "warning",
                                           "--chat-template-content-format",
                                           "openai",
                                           "--runner",
                                           "generate",
                                           "--api-server-count",
                                           "1",
                                           "--port",
                                           "80",
                                           "--guided-decoding-backend",
                                           "xgrammar",
                                           "--compilation-config",
                                           R"({"level": 3})"});
  ASSERT_TRUE(rest) << rest.error().message;
  EXPECT_EQ(*rest, (std::vector<std::string>{"org/name", "--port", "80"}));
  EXPECT_TRUE(without_neutral_flags({"--tokenizer", "org/name", "--model=org/name"}));
  EXPECT_EQ(without_neutral_flags({"org/name", "--tokenizer", "org/other"}).error().message,
            "--tokenizer org/other: only org/name is supported: the tokenizer is the model's");
  EXPECT_EQ(without_neutral_flags({"--runner", "pooling"}).error().message,
            "--runner pooling: only auto|generate is supported: the model generates");
  EXPECT_EQ(
      without_neutral_flags({"--tokenizer", "file"}, [](const std::string& flag) { return flag == "--tokenizer"; }).value(),
      (std::vector<std::string>{"--tokenizer", "file"}));
  EXPECT_FALSE(without_neutral_flags({"--api-server-count", "2"}));
  EXPECT_FALSE(without_neutral_flags({"--runner"}));
}

TEST(VllmFlags, a_switch_is_taken_in_the_way_that_changes_nothing) {
  EXPECT_TRUE(without_neutral_flags({"--no-enable-lora", "--no-trust-remote-code", "--trust-remote-code",
                                     "--no-disable-custom-all-reduce", "--no-async-scheduling"})
                  .value()
                  .empty());
  const auto message = [](const char* flag) { return without_neutral_flags({flag}).error().message; };
  EXPECT_EQ(message("--enable-lora"), "--enable-lora is not supported: there are no adapters");
  EXPECT_EQ(message("--no-enable-chunked-prefill"),
            "--no-enable-chunked-prefill is not supported: prompts are always computed in chunks");
  EXPECT_EQ(message("--enable-sleep-mode"), "--enable-sleep-mode is not supported: a model that is not needed is closed");
  EXPECT_EQ(without_neutral_flags({"--no-swap-space"}).value(), (std::vector<std::string>{"--no-swap-space"}));
}

TEST(VllmFlags, what_baton_cannot_do_is_refused_with_its_reason) {
  const auto message = [](const char* flag) { return without_neutral_flags({flag, "x"}).error().message; };
  EXPECT_EQ(message("--rope-scaling=x"), "--rope-scaling is not supported: config.json is taken as it is");
}

TEST(VllmFlags, the_table_is_in_the_order_of_names_and_is_all_in_the_docs) {
  EXPECT_TRUE(std::ranges::is_sorted(vllm_flags(), {}, &VllmFlag::name));
  const auto read = read_file(test::source_folder() / "docs/flags.md");
  ASSERT_TRUE(read);
  for (const VllmFlag& flag : vllm_flags()) {
    const std::string name =
        flag.values == kOff ? fmt::format("`--no-{}`", flag.name.substr(2)) : fmt::format("`{}`", flag.name);
    EXPECT_NE(read->find(name), std::string::npos) << name;
    EXPECT_NE(read->find(flag.reason), std::string::npos) << flag.reason;
  }
}

TEST(VllmFlags, tp_is_short_for_tensor_parallel_size) {
  EXPECT_EQ(without_neutral_flags({"org/name", "-tp", "2"}).value(),
            (std::vector<std::string>{"org/name", "--tensor-parallel-size", "2"}));
  EXPECT_EQ(without_neutral_flags({"-tp=4"}).value(), (std::vector<std::string>{"--tensor-parallel-size=4"}));
}

TEST(VllmFlags, names_may_be_written_with_underscores) {
  EXPECT_EQ(without_neutral_flags({"org/a_b", "--max_num_seqs", "8", "--kv_cache_dtype=fp8_e4m3"}).value(),
            (std::vector<std::string>{"org/a_b", "--max-num-seqs", "8", "--kv-cache-dtype=fp8_e4m3"}));
  EXPECT_EQ(without_neutral_flags({"--trust_remote_code", "-O3", "-O", "2"}).value(), std::vector<std::string>{});
  EXPECT_EQ(without_neutral_flags({"--swap_space=4", "x_y"}).value(), std::vector<std::string>{"x_y"});
}

}  // namespace
}  // namespace baton
