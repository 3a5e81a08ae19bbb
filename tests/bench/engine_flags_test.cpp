#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "bench/engine/decode_bench.h"
#include "cli/options.h"

namespace baton {
namespace {

TEST(EngineFlags, of_benchmarks_leave_out_what_their_arms_decide) {
  DecodeBenchOptions options;
  CLI::App app{"test"};
  app.allow_extras();
  add_decode_bench_options(app, options);
  std::vector<std::string> words{"--arms", "paged,unshared", "--shape", "110m", "--max-num-batched-tokens", "64"};
  std::reverse(words.begin(), words.end());
  app.parse(words);
  EXPECT_EQ(options.arms, (std::vector<std::string>{"paged", "unshared"}));
  EXPECT_EQ(options.shape, "110m");
  EXPECT_EQ(options.model.max_num_batched_tokens, 64);
  for (const char* flag : {"--attention", "--no-enable-prefix-caching", "--max-num-seqs", "--prefix"})
    EXPECT_FALSE(refuse_unknown_flags(app, {flag})) << flag;
  CLI::App other{"test"};
  add_decode_bench_options(other, options);
  EXPECT_THROW(other.parse("--arms cascade", false), CLI::ParseError);
}

}  // namespace
}  // namespace baton
