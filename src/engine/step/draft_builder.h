/// Builds the passes in which a model's layer for drafts (MtpSpec) runs after a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/step/batch_builder.h"
#include "engine/step/draft_pass.h"
#include "kernels/batch.h"
#include "plan/attention_plan.h"

namespace baton {

/// Thread: engine only.
class DraftBuilder {
 public:
  /// `group`: the model's only layer group.
  DraftBuilder(const LayerGroup& group, const AttentionPlanOptions& options) : group_(group), options_(options) {}

  void set_relay(bool relay) { options_.relay = relay; }

  /// The passes after a step whose results are read and not committed: `outcomes` are its results, `runs` those of
  /// Scheduler::draft_runs. At least one. A row whose next token no one knows (after a rejected draft, or at the end of a prompt
  /// that generates nothing) gets any token: nothing is drafted from it.
  std::vector<DraftPass> build(const StepPlan& plan, const BuiltStep& step, std::span<const StepOutcome> outcomes,
                               std::span<const DraftRun> runs);

 private:
  DraftPass first(const StepPlan& plan, const BuiltStep& step, std::span<const StepOutcome> outcomes,
                  std::span<const DraftRun> runs);
  DraftPass next(std::int32_t n_before, std::span<const DraftRun> runs);

  LayerGroup group_;
  AttentionPlanOptions options_;
  AttentionPlanner planner_;
  std::vector<std::int32_t> last_rows_;  ///< of each run in the last pass
};

/// The drafts of each run, from the results of all passes in their order. Those after a logit that was not a number are left out.
std::vector<std::vector<TokenId>> read_drafts(std::span<const DraftPass> passes, std::span<const SampleResult> results,
                                              std::size_t n_runs);

}  // namespace baton
