/// Rank 0 with the other ranks as processes that it starts on its host.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <thread>

#include "core/result.h"
#include "ranks/rank_group.h"
#include "ranks/rank_processes.h"

namespace baton {

/// The group and its processes, from start to end. Thread: any, one at a time.
class LocalRanks {
 public:
  /// Starts `program` (a `baton`; empty: this program) as `baton rank` for each rank above 0, and waits until all have
  /// joined. Of `options` the world size, the port (0: a free one), the version and the limits count. Errors: unavailable (a rank does not come).
  static Result<std::unique_ptr<LocalRanks>> start(const std::string& program, RankOptions options);
  /// Ends the group in order, waits for the processes, and kills hanging ones. No other holder of the group may remain.
  ~LocalRanks();
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  const std::shared_ptr<RankGroup>& group() const { return group_; }
  void kill_all() { processes_.kill_all(); }

 private:
  explicit LocalRanks(const std::string& program) : processes_(program) {}
  Result<void> start_processes(const RankOptions& options);

  RankProcesses processes_;
  std::shared_ptr<RankGroup> group_;
  std::promise<void> end_;
  std::thread starter_;  ///< has started the processes, which end with it
};

}  // namespace baton
