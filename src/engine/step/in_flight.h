/// Steps that have not been committed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/step/batch_builder.h"

namespace baton {

/// A step that was passed to the executor and is not committed. The executor owns its buffer until it is read.
struct StepInFlight {
  StepPlan plan;
  BuiltStep built;
  bool is_read = false;  ///< its results were read: only the commit is left
  /// See Scheduler::plan_draft_passes. No other step is enqueued before these passes.
  std::optional<std::int32_t> n_draft_passes = {};
  std::vector<DraftRun> draft_runs = {};          ///< once it is read
  std::vector<std::vector<TokenId>> drafts = {};  ///< of each
  double draft_seconds = 0;
};

}  // namespace baton
