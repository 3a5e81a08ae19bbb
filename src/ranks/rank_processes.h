/// The processes that rank 0 starts on its host for the other ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace baton {

/// The variable of the environment that holds RankOptions::token.
inline constexpr const char* kRankTokenVariable = "BATON_RANK_TOKEN";

/// Child processes. None outlives this object, nor this process: a child whose parent has ended is killed by the kernel
/// (see end_with_parent). Thread: one at a time; the thread that starts them must live as long as they.
class RankProcesses {
 public:
  /// The children are processes of `program`; empty: of this program.
  explicit RankProcesses(const std::string& program = {});
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  /// See wait_all.
  ~RankProcesses();

  /// Starts the program for rank `rank`, with `arguments` and more variables of the environment ("NAME=VALUE").
  /// Standard input is empty, standard output goes to standard error. Errors: unavailable.
  Result<void> start(int rank, const std::vector<std::string>& arguments, const std::vector<std::string>& variables);

  /// A sentence about a child that has ended; nothing while all run.
  std::optional<std::string> find_ended() const;
  /// Kills all at once; wait_all reaps them.
  void kill_all();
  /// Waits a few seconds for the children to end by themselves, then kills them.
  void wait_all();

 private:
  struct Child {
    int rank = 0;
    int process = 0;
  };
  const std::string program_;
  std::vector<Child> processes_;
};

/// For a child's program: from now on the kernel kills it when its parent ends, and it lets rank 0 answer SIGINT, SIGTERM
/// and SIGHUP, which a terminal or a supervisor sends to all processes. False if the parent has ended already.
bool end_with_parent();

/// " was killed by signal 9 (Killed)", " has ended with exit code 1": how a child of this process has ended, which stays
/// to be reaped. Nothing if it runs or is no child. Waits at most `timeout_ms` for its end.
std::optional<std::string> how_child_ended(int process, int timeout_ms);

}  // namespace baton
