/// How long a device worked, from the records of an engine's steps.
#pragma once

#include <chrono>
#include <optional>
#include <span>

#include "engine/watchdog.h"

namespace baton {

/// Adds up the time in which the device surely computed. A backend that is not asynchronous computes a step while the
/// engine waits for it. An asynchronous one has begun earlier: when the step was planned and handed over or, if later,
/// when the step before it ended. If the engine found the step's results there already (it waited less than kNoWait),
/// the device may have stood still meanwhile, and the step counts as nothing. So the sum is a lower bound, and exact
/// while the device is what takes the time.
class DeviceBusyTime {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kNoWait{20};

  explicit DeviceBusyTime(bool is_asynchronous) : is_asynchronous_(is_asynchronous) {}

  /// Takes Engine::recent_steps, oldest first; records that it has taken before are ignored. Call it after each step,
  /// because an engine keeps few records.
  void take(std::span<const StepRecord> records);
  double seconds() const { return seconds_; }

 private:
  void take(const StepRecord& record);

  struct Step {
    std::int64_t number = -1;
    Clock::time_point at = {};
  };

  bool is_asynchronous_;
  Clock::time_point last_ = {};  ///< of the last record
  Step planned_;
  Step planned_before_;  ///< the next step is planned before this one is waited for
  Clock::time_point run_begin_ = {};
  Clock::time_point run_end_ = {};
  double seconds_ = 0;
};

}  // namespace baton
