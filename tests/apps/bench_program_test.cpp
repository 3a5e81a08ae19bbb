#include "apps/bench_program.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

using Words = std::vector<std::string>;

TEST(BenchProgram, gets_all_words_but_bench) {
  EXPECT_EQ(words_for_bench_program({"bench", "decode", "--runs", "1"}), (Words{"decode", "--runs", "1"}));
  EXPECT_EQ(words_for_bench_program({"--help", "bench", "decode"}), (Words{"--help", "decode"}));
  EXPECT_EQ(words_for_bench_program({"bench", "bench"}), Words{"bench"});
  EXPECT_EQ(words_for_bench_program({"bench"}), Words{});
  EXPECT_EQ(words_for_bench_program({"demo", "--skip-large"}), (Words{"demo", "--skip-large"}));
  EXPECT_EQ(words_for_bench_program({"--help", "demo"}), (Words{"--help", "demo"}));
}

TEST(BenchProgram, gets_no_words_of_other_subcommands) {
  EXPECT_EQ(words_for_bench_program({}), std::nullopt);
  EXPECT_EQ(words_for_bench_program({"--help"}), std::nullopt);
  EXPECT_EQ(words_for_bench_program({"chat", "bench"}), std::nullopt);
  EXPECT_EQ(words_for_bench_program({"benches"}), std::nullopt);
}

TEST(BenchProgram, is_looked_for_beside_this_program_alone) {
  const auto found = find_bench_program();
  const std::string beside = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "baton-bench";
  ASSERT_FALSE(found) << "there is a " << *found << " beside the tests";
  EXPECT_EQ(found.error().code, ErrorCode::not_found);
  EXPECT_EQ(found.error().message,
            "benchmarks and demo are a program of their own, which is not installed: there is no " + beside);
}

TEST(BenchProgram, that_is_missing_ends_with_1_and_its_path) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(become_bench_program({"decode"}), 1);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(said.starts_with("baton: benchmarks and demo are a program")) << said;
  EXPECT_TRUE(said.ends_with("/baton-bench\n")) << said;
}

}  // namespace
}  // namespace baton
