/// Shares out a step's time for token masks among the keys and requests that need them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/parallel.h"
#include "engine/mask_budget.h"
#include "engine/request.h"
#include "grammar/matcher.h"

namespace baton {

/// A piece of work that can stop and go on.
struct MaskJob {
  Tenant tenant;
  RequestId request;
  const void* matcher = nullptr;  ///< jobs of one matcher do not run at the same time
  /// Goes on as far as the work allows; whether it is done.
  std::function<bool(grammar::MatcherWork& work)> go_on;
  bool is_done = false;
};

/// Works on jobs in turns: next is the tenant that has had the least work for its weight, of its requests the one that has
/// had the least, and of that one's jobs the first. Work counts from step to step while its owner has jobs, so what does
/// not fit a step comes to its turn in a later one. Threads are made once. Thread: engine only.
class MaskJobs {
 public:
  explicit MaskJobs(const MaskBudget& budget);

  /// A step begins, with its budget.
  void begin_step();
  enum class Part { half, all };
  /// Works on `jobs` until all are done or that part of the step's budget is used up. By the clock alone, the first job
  /// that is next always has its turn.
  void run(std::span<MaskJob> jobs, Part part);

 private:
  using Clock = std::chrono::steady_clock;
  struct Account {
    std::int64_t time = 0;                            ///< steps x kUnit / weight
    std::map<std::int64_t, std::int64_t> of_request;  ///< steps
  };

  void open_accounts(std::span<const MaskJob> jobs);
  MaskJob* next(std::span<MaskJob> jobs);
  bool is_before(const MaskJob& job, const MaskJob& other) const;
  void serve(std::span<MaskJob> jobs);

  const MaskBudget budget_;
  const Parallel threads_;
  std::mutex mutex_;
  // Of the step; while run() goes on, guarded by mutex_.
  std::map<std::int32_t, Account> accounts_;  ///< by tenant
  std::vector<const void*> busy_;             ///< matchers
  std::int64_t n_steps_left_ = 0;
  std::int64_t n_steps_kept_ = 0;  ///< for later runs of the step
  Clock::time_point begin_;
  Clock::time_point deadline_;
  bool has_turned_ = false;  ///< a job had its turn in this run
};

}  // namespace baton
