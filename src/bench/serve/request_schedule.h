/// When a benchmark sends its requests: arrival times as a function of a rate and a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/result.h"

namespace baton {

struct ScheduleOptions {
  double rate = std::numeric_limits<double>::infinity();  ///< requests a second; infinite: all at once
  /// Shape of the gamma distribution of the gaps: 1 is a Poisson process, less is more bursty, more is more even,
  /// infinite gives equal gaps.
  double burstiness = 1;
  /// "linear" or "exponential": the rate grows from request to request from ramp_up_start to ramp_up_end, and `rate` is
  /// not used. Empty: it stays.
  std::string ramp_up = {};
  double ramp_up_start = 0;
  double ramp_up_end = 0;
};

/// Errors (invalid_request) name the flag of `baton bench serve` that sets the value at fault.
Result<void> check_schedule(const ScheduleOptions& options);

/// Arrivals of `n` requests in seconds from the begin, in order. As in vLLM's benchmark the first request comes after a
/// gap too, and without a ramp the times are stretched so that the last request comes at n / rate.
/// The same options and seed give the same times. Requires: check_schedule passes.
std::vector<double> make_schedule(const ScheduleOptions& options, std::uint64_t seed, std::size_t n);

}  // namespace baton
