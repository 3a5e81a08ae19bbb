/// Work that must not be lost while memory is short.
#pragma once

#include <string_view>

#include "core/attempt.h"

namespace baton {

/// Waits for others to give memory back, after the failed trial number `trial` (from 0). After 500 of them, ten seconds, the
/// program ends, and the log has `effect`.
void wait_for_memory(int trial, std::string_view effect);

/// Calls `act` until it does not throw std::bad_alloc. An `act` that throws must be able to run again. Not on the I/O thread,
/// which must not wait.
template <class Act>
void insist(std::string_view effect, Act act) {
  for (int trial = 0; !attempt(act); ++trial) wait_for_memory(trial, effect);
}

}  // namespace baton
