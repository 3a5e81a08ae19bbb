/// Requests that have not ended and steps that have not been committed.
#pragma once

#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "engine/schedule/scheduler.h"
#include "engine/step/batch_builder.h"

namespace baton {

/// A step that was passed to the executor and is not committed. The executor owns its buffer until it is read.
struct StepInFlight {
  StepPlan plan;
  BuiltStep built;
  bool is_read = false;  ///< its results were read: only the commit is left
};

struct LiveRequest {
  std::vector<SequenceId> sequences;
  std::int32_t n_unfinished = 0;
  std::int32_t n_generated = 0;  ///< tokens of the longest sequence that has ended
};

}  // namespace baton
