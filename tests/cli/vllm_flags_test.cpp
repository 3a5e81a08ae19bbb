/// Flags of vLLM that change nothing (cli/options.h, without_neutral_flags).
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cli/options.h"

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

TEST(VllmFlags, tp_is_short_for_tensor_parallel_size) {
  EXPECT_EQ(without_neutral_flags({"org/name", "-tp", "2"}).value(),
            (std::vector<std::string>{"org/name", "--tensor-parallel-size", "2"}));
  EXPECT_EQ(without_neutral_flags({"-tp=4"}).value(), (std::vector<std::string>{"--tensor-parallel-size=4"}));
}

}  // namespace
}  // namespace baton
