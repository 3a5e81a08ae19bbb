/// From a plan to the sections of a step.
#include <algorithm>

#include "plan/attention_plan.h"

namespace baton {

void append_plan(StepInput& step, const AttentionPlan& plan, int group) {
  step.append(SectionKind::rows, plan.rows, group);
  step.append(SectionKind::items, plan.items, group);
  step.append(SectionKind::block_lists, plan.block_lists, group);
  step.append(SectionKind::merge_offsets, plan.merge_offsets, group);
  step.append(SectionKind::merge_inputs, plan.merge_inputs, group);
  step.append(SectionKind::pairs, plan.pairs, group);
  step.append(SectionKind::worker_offsets, plan.worker_offsets, group);
  LayerGroupHeader& header = step.group(group);
  header.n_partials = plan.n_partials;
  for (std::size_t row = 0; plan.n_partials > 0 && row < plan.rows.size(); ++row)
    header.most_merge_inputs = std::max(header.most_merge_inputs, plan.merge_offsets[row + 1] - plan.merge_offsets[row]);
  header.n_item_major = plan.n_item_major;
  header.tile_kind = plan.tile_kind;
  header.n_larger_workers = plan.n_larger_workers;
}

}  // namespace baton
