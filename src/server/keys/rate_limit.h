/// A limit per minute.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

namespace baton {

/// At most so many a minute: what was taken comes back evenly, and at most one minute's worth is there. Taking more than
/// there is leaves a debt, which must come back first. Thread: one at a time.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  /// Changes the limit; what is there is kept, up to one minute's worth. nullopt: no limit.
  void set(std::optional<std::int64_t> per_minute, Clock::time_point now) {
    if (per_minute_ == per_minute) return;
    fill(now);
    const bool is_first = !per_minute_;
    per_minute_ = per_minute;
    as_of_ = now;
    const double most = static_cast<double>(per_minute.value_or(0));
    left_ = is_first ? most : std::min(left_, most);
  }
  /// Time until `n` more may be taken; zero if they are there. `n` counts as one minute's worth at most.
  std::chrono::duration<double> wait_for(std::int64_t n, Clock::time_point now) {
    if (!per_minute_) return {};
    fill(now);
    const double lacking = static_cast<double>(std::min(n, *per_minute_)) - left_;
    return std::chrono::duration<double>(lacking <= 0 ? 0 : lacking * 60 / static_cast<double>(*per_minute_));
  }
  void take(std::int64_t n, Clock::time_point now) {
    if (!per_minute_) return;
    fill(now);
    left_ -= static_cast<double>(n);
  }

 private:
  void fill(Clock::time_point now) {
    if (!per_minute_ || now <= as_of_) return;
    const auto rate = static_cast<double>(*per_minute_) / 60;
    const double seconds = std::chrono::duration<double>(now - as_of_).count();
    left_ = std::min(left_ + rate * seconds, static_cast<double>(*per_minute_));
    as_of_ = now;
  }

  std::optional<std::int64_t> per_minute_;
  double left_ = 0;
  Clock::time_point as_of_ = {};
};

}  // namespace baton
