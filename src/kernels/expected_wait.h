/// How to wait for what arrives at regular times, such as the results of a device's steps.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

namespace baton {

/// The last waits of a thread, and what they say about the next one.
///
/// A thread that waits by asking again and again keeps a core busy; one that sleeps until it is told awakes some tens of microseconds
/// late. Where the device has its next step already, and the thread has mostly waited for longer than that, a late awakening costs no
/// time of the device. Where the device would stand idle, the thread sleeps through the part of a wait that the last eight all had, less
/// a margin, and asks in the rest.
class ExpectedWait {
 public:
  using Duration = std::chrono::nanoseconds;

  /// Time to sleep at the beginning of a wait; zero: it is not worth it, or too few waits are known.
  Duration nap() const {
    if (n_waits_ < waits_.size()) return Duration::zero();
    const Duration nap = *std::ranges::min_element(waits_) - kMargin;
    return nap < kShortest ? Duration::zero() : nap;
  }

  /// Whether all of the last eight waits but one at most were far longer than an awakening takes.
  bool is_mostly_long() const {
    return n_waits_ >= waits_.size() && std::ranges::count_if(waits_, [](Duration wait) { return wait < kLong; }) <= 1;
  }

  /// A wait that took so long has ended. `was_over_after_nap`: it was over when the sleep ended, so that it may have been shorter:
  /// it counts as half, and so do the next ones until one is seen to end.
  void took(Duration waited, bool was_over_after_nap) {
    waits_[n_waits_++ % waits_.size()] = was_over_after_nap ? waited / 2 : waited;
  }

  /// An interrupt costs the device about 2 us, and awakes the thread 20 to 60 later.
  static constexpr Duration kLong = std::chrono::microseconds(500);

 private:
  static constexpr Duration kMargin = std::chrono::microseconds(150);
  static constexpr Duration kShortest = std::chrono::microseconds(50);
  std::array<Duration, 8> waits_{};
  std::size_t n_waits_ = 0;
};

/// Waits until `event` is over. An Event has
///
///     now()               the time, a Duration since any time
///     is_over()           asks the device
///     sleep_for(time)     sleeps, and awakes a little late
///     sleep_until_over()  the same, until the event is over
///     ask_until_over()    keeps a core busy, and returns at once
///
/// `has_more`: the device has all of its next step, so that it does not stand idle if this thread awakes late.
template <class Event>
void wait_as_expected(ExpectedWait& expected, bool has_more, Event& event) {
  const ExpectedWait::Duration begin = event.now();
  bool was_over_after_nap = false;
  if (has_more && expected.is_mostly_long()) {
    event.sleep_until_over();
  } else {
    const ExpectedWait::Duration nap = expected.nap();
    const bool sleeps = nap > nap.zero() && !event.is_over();
    if (sleeps) event.sleep_for(nap);
    was_over_after_nap = sleeps && event.is_over();
    event.ask_until_over();
  }
  expected.took(event.now() - begin, was_over_after_nap);
}

}  // namespace baton
