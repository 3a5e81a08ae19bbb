/// What an engine has in hand: requests that have not ended, steps that have not been committed.
#pragma once

#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "engine/batch_builder.h"
#include "engine/scheduler.h"

namespace baton {

/// A step that was handed to the executor and not committed; its buffer is the executor's.
struct StepInFlight {
  StepPlan plan;
  BuiltStep built;
};

struct LiveRequest {
  std::vector<SequenceId> sequences;
  std::int32_t n_unfinished = 0;
  std::int32_t n_generated = 0;  ///< tokens of the longest that ended
  bool is_queued = true;         ///< none of its sequences was admitted yet
};

}  // namespace baton
