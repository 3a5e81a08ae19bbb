/// Records what the engine does in each step and detects when it is stuck.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/ids.h"
#include "core/mutex.h"

namespace baton {

/// An event in the engine's work on a step, with its time.
struct StepRecord {
  enum class What { plan_begin, plan_end, run_begin, run_end, commit_begin, commit_end };
  What what = What::plan_begin;
  std::int64_t step = 0;
  std::chrono::steady_clock::time_point at = {};
};

/// The state as of a plan, for the log.
struct EngineState {
  struct Row {
    RequestId request;
    SequenceId sequence;
    std::int32_t first_position = 0;
    std::int32_t n_rows = 0;
  };
  std::int64_t step = -1;
  std::vector<Row> rows;  ///< of the step that was planned
  std::int32_t n_running = 0;
  std::int32_t n_waiting = 0;
  std::int32_t n_blocks_used = 0;
  std::int32_t n_blocks = 0;
};

/// A step that takes longer than the timeout marks the engine as stuck, and the log says what the engine was doing.
/// When the step ends after all, the mark is removed. Time between steps does not count. A thread of the watchdog
/// checks several times per timeout, and writes all of the log: the engine never waits for the log's reader. Thread: any.
class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;

  /// 0: no checks; records are still kept.
  explicit Watchdog(std::chrono::milliseconds timeout);
  ~Watchdog();

  void start();
  void stop();  ///< idempotent

  void begin_step();
  void end_step();
  void record(StepRecord::What what, std::int64_t step);
  /// Takes the state of a new plan.
  void planned(EngineState state);
  /// The state of the plan before the last two, whose memory may serve again.
  EngineState take_spare();

  bool is_stuck() const;
  /// The last few dozen records, oldest first.
  std::vector<StepRecord> recent_steps() const;
  /// The lines that are logged.
  std::vector<std::string> describe() const;

 private:
  /// A step that lasted longer than the timeout and has ended.
  struct LateStep {
    std::int64_t step = 0;
    std::chrono::duration<double> took = {};
  };
  void run();
  bool wait_stop(std::chrono::milliseconds time) BATON_REQUIRES(mutex_);
  std::vector<std::string> describe_locked() const BATON_REQUIRES(mutex_);

  const std::chrono::milliseconds timeout_;
  std::thread thread_;  ///< the owner's

  mutable Mutex mutex_;
  Condition stopped_;
  bool is_stopping_ BATON_GUARDED_BY(mutex_) = false;
  bool is_stuck_ BATON_GUARDED_BY(mutex_) = false;
  std::optional<Clock::time_point> step_begun_ BATON_GUARDED_BY(mutex_);
  std::optional<LateStep> late_ BATON_GUARDED_BY(mutex_);  ///< the last one that the log was not told of
  EngineState state_ BATON_GUARDED_BY(mutex_);             ///< of the step planned last
  EngineState previous_ BATON_GUARDED_BY(mutex_);          ///< of the step before it, which runs while that one is planned
  EngineState spare_ BATON_GUARDED_BY(mutex_);             ///< of the step before that one
  std::deque<StepRecord> records_ BATON_GUARDED_BY(mutex_);
};

}  // namespace baton
