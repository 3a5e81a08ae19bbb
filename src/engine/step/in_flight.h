/// Steps that have not been committed.
#pragma once

#include "engine/schedule/scheduler.h"
#include "engine/step/batch_builder.h"

namespace baton {

/// A step that was passed to the executor and is not committed. The executor owns its buffer until it is read.
struct StepInFlight {
  StepPlan plan;
  BuiltStep built;
  bool is_read = false;  ///< its results were read: only the commit is left
};

}  // namespace baton
