/// Starts that fail (ranks/local_ranks.h). tests/e2e/test_ranks.py and tests/python/test_ranks.py have starts that do
/// not.
#include "ranks/local_ranks.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

Error error_of(const std::string& program) {
  const auto ranks = LocalRanks::start(program, {.world_size = 3, .version = "1"});
  return ranks ? Error{} : ranks.error();
}

TEST(LocalRanks, a_program_that_ends_at_once_ends_the_start) {
  const Error error = error_of("/bin/false");
  EXPECT_EQ(error.code, ErrorCode::unavailable);
  EXPECT_NE(error.message.find("has ended with exit code 1"), std::string::npos) << error.message;
  EXPECT_TRUE(error.message.starts_with("rank ")) << error.message;
}

TEST(LocalRanks, a_program_that_is_not_there_is_named) {
  const Error error = error_of("/no/such/program");
  EXPECT_EQ(error.code, ErrorCode::unavailable);
  EXPECT_EQ(error.message, "rank 1 cannot be started: /no/such/program: No such file or directory");
}

}  // namespace
}  // namespace baton
