/// How long a step may wait for its token masks.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

namespace baton {

/// A step's samples are drawn when this is used up, without those whose masks are not ready (StepMasks).
struct MaskBudget {
  std::chrono::microseconds time{30'000};
  std::int64_t steps = std::numeric_limits<std::int64_t>::max() / 4;  ///< grammar::MatcherWork; tests set it
  std::int64_t steps_of_turn = 4096;  ///< of one mask, before it is another key's or request's turn: below half a millisecond
};

}  // namespace baton
