/// Shares out a step's time for token masks among the keys and requests that need them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/mutex.h"
#include "core/parallel.h"
#include "engine/request/request.h"
#include "engine/schedule/mask_budget.h"
#include "grammar/match/matcher.h"

namespace baton {

/// A piece of work that can stop and continue.
struct MaskJob {
  Tenant tenant;
  RequestId request;
  const void* matcher = nullptr;  ///< jobs of one matcher do not run at the same time
  /// Continues as far as the work allows; whether it is done. std::bad_alloc ends the job.
  std::function<bool(grammar::MatcherWork& work)> go_on;
  bool is_done = false;
  bool lacks_memory = false;
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

  void begin_run(std::span<const MaskJob> jobs, Part part, std::int64_t n_saved);
  void open_accounts(std::span<const MaskJob> jobs) BATON_REQUIRES(mutex_);
  MaskJob* next(std::span<MaskJob> jobs) BATON_REQUIRES(mutex_);
  bool is_before(const MaskJob& job, const MaskJob& other) const BATON_REQUIRES(mutex_);
  void serve(std::span<MaskJob> jobs);

  const MaskBudget budget_;
  const Parallel threads_;
  Mutex mutex_;
  // Of the step. During run(), its threads use them.
  std::map<std::int32_t, Account> accounts_ BATON_GUARDED_BY(mutex_);  ///< by tenant
  std::vector<const void*> busy_ BATON_GUARDED_BY(mutex_);             ///< matchers
  std::int64_t n_steps_left_ BATON_GUARDED_BY(mutex_) = 0;
  Clock::time_point deadline_ BATON_GUARDED_BY(mutex_);
  bool has_turned_ BATON_GUARDED_BY(mutex_) = false;  ///< a job had its turn in this run
  // Of the step, between its runs: the engine's thread alone.
  std::int64_t n_steps_kept_ = 0;  ///< for later runs of the step
  Clock::time_point begin_;
};

}  // namespace baton
