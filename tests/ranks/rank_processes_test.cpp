#include "ranks/rank_processes.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "support/wait_until.h"

namespace baton {
namespace {

/// What the children of this test run: this program again, with one of its disabled tests.
std::vector<std::string> child(const std::string& name) {
  return {"--gtest_also_run_disabled_tests", "--gtest_brief=1", "--gtest_filter=RankProcesses.DISABLED_" + name};
}

TEST(RankProcesses, DISABLED_child_waits_for_ever) {
  if (!end_with_parent()) std::_Exit(9);
  while (true) ::pause();
}
TEST(RankProcesses, DISABLED_child_ends_as_it_is_told) {
  const char* const code = std::getenv("BATON_TEST_EXIT_CODE");
  std::_Exit(code == nullptr ? 8 : std::atoi(code));
}

std::string wait_for_end(const RankProcesses& processes) {
  std::optional<std::string> ended;
  testing::wait_until([&] { return (ended = processes.find_ended()).has_value(); });
  return *ended;
}

TEST(RankProcesses, a_child_that_ends_is_named_with_its_exit_code) {
  RankProcesses processes;
  ASSERT_TRUE(processes.start(1, child("child_waits_for_ever"), {}));
  EXPECT_EQ(processes.find_ended(), std::nullopt);
  ASSERT_TRUE(processes.start(2, child("child_ends_as_it_is_told"), {"BATON_TEST_EXIT_CODE=7"}));
  const std::string ended = wait_for_end(processes);
  EXPECT_TRUE(ended.starts_with("rank 2 (process ")) << ended;
  EXPECT_TRUE(ended.ends_with(") has ended with exit code 7")) << ended;
  processes.kill_all();
}

TEST(RankProcesses, a_killed_child_is_named_with_its_signal_and_reaped) {
  RankProcesses processes;
  ASSERT_TRUE(processes.start(3, child("child_waits_for_ever"), {}));
  processes.kill_all();
  const std::string ended = wait_for_end(processes);
  EXPECT_TRUE(ended.ends_with(") was killed by signal 9 (Killed)")) << ended;
  processes.wait_all();
  EXPECT_EQ(processes.find_ended(), std::nullopt);
}

}  // namespace
}  // namespace baton
