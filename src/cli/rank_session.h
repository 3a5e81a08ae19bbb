/// This process among the ranks of tensor parallelism: which process starts which, and how the program ends when a rank
/// is lost.
#pragma once

#include <memory>
#include <thread>

#include "core/result.h"
#include "ranks/local_ranks.h"
#include "ranks/rank_group.h"
#include "ranks/rank_place.h"

namespace baton {

/// From the start of a command to its end. When the group breaks, a thread gives the command a few seconds to end by
/// itself (its engine ends all requests with the sentence), and then ends the program with exit code 1: a device may
/// hang in what the lost rank should have done.
class RankSession {
 public:
  /// Joins the group that flags and environment name; rank 0 may start the other ranks first. Errors: invalid_request
  /// (flags), unavailable (a rank does not come).
  static Result<std::unique_ptr<RankSession>> start(const RankFlags& flags);
  /// Tells the other ranks that all is over, and waits for the ranks that it started.
  ~RankSession();
  RankSession(const RankSession&) = delete;
  RankSession& operator=(const RankSession&) = delete;

  /// Null: this process is alone.
  const std::shared_ptr<RankGroup>& group() const { return group_; }
  bool is_rank_0() const { return group_ == nullptr || group_->rank() == 0; }

 private:
  RankSession() = default;
  Result<void> join(const RankFlags& flags);
  void watch();

  std::unique_ptr<LocalRanks> others_;  ///< that this process started; null: none
  std::shared_ptr<RankGroup> group_;
  std::jthread watcher_;
};

/// The program of a rank > 0: does what rank 0 says, until that one ends. Returns the exit code; what goes wrong is
/// said by rank 0.
int rank_main(const RankSession& session);

}  // namespace baton
