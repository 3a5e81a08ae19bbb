/// Waiting for what other threads and processes do.
#pragma once

#include <chrono>
#include <concepts>
#include <thread>

namespace baton::testing {

/// As long as a wait may last that ends by an event: longer than ctest lets a test run (cmake/layers.cmake), so that how fast the
/// machine is decides nothing.
inline constexpr std::chrono::minutes kUntilKilled{20};

/// Returns when the condition holds, looked at every millisecond. Where it never does, the test hangs and ctest ends it.
template <std::predicate Condition>
void wait_until(const Condition& holds) {
  while (!holds()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace baton::testing
