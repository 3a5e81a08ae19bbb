/// How long to sleep before one asks for something that arrives at regular times, such as the results of a device's steps.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

namespace baton {

/// A thread that waits by asking again and again keeps a core busy; one that sleeps until it is told wakes too late. This one
/// sleeps through the part of a wait that the last eight waits all had, less a margin for a late awakening, and asks in the rest.
class ExpectedWait {
 public:
  using Duration = std::chrono::nanoseconds;

  /// Time to sleep at the beginning of a wait; zero: it is not worth it, or too few waits are known.
  Duration nap() const {
    if (n_waits_ < waits_.size()) return Duration::zero();
    const Duration nap = *std::ranges::min_element(waits_) - kMargin;
    return nap < kShortest ? Duration::zero() : nap;
  }

  /// A wait that took so long has ended. `was_over_after_nap`: it was over when the sleep ended, so that it may have been shorter:
  /// it counts as half, and so do the next ones until one is seen to end.
  void took(Duration waited, bool was_over_after_nap) {
    waits_[n_waits_++ % waits_.size()] = was_over_after_nap ? waited / 2 : waited;
  }

 private:
  static constexpr Duration kMargin = std::chrono::microseconds(150);
  static constexpr Duration kShortest = std::chrono::microseconds(50);
  std::array<Duration, 8> waits_{};
  std::size_t n_waits_ = 0;
};

}  // namespace baton
