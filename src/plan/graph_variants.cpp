/// What a plan tells captured graphs: merges, and kinds of tiles.
#include "plan/graph_variants.h"

namespace baton {
namespace {

enum Variant : std::size_t {
  kDirect,  ///< without partial states: no merge
  kMerged,  ///< the last one that every device has
  kJoint,   ///< merged, with the kernel of larger tiles beside the other one
};

/// The workers for larger tiles in decode steps of `n_rows` rows, if these may have some.
std::int32_t joint_workers(const AttentionShape& shape, const AttentionCosts& costs, std::int32_t n_rows) {
  const LargerTiles& tiles = costs.larger_tiles.front();
  return tiles.may_join(shape) && n_rows > rows_a_read(costs, shape) ? tiles.costs.n_workers : 0;
}

}  // namespace

std::optional<std::size_t> graph_variant(const StepView& step) {
  Variant variant = kDirect;
  for (int i = 0; i < step.header->n_groups; ++i) {
    const LayerGroupHeader& group = step.group(i);
    if (group.tile_kind != 0) return std::nullopt;  // graphs hold the kernel for tiles of kind 0
    if (group.n_larger_workers > 0) variant = kJoint;
    if (group.n_partials > 0 && variant == kDirect) variant = kMerged;
  }
  return variant;
}

std::vector<StepInput> steps_to_capture(std::int32_t n_rows, std::span<const AttentionShape> shapes,
                                        const AttentionCosts& costs) {
  std::vector<StepInput> steps;
  for (const Variant variant : {kDirect, kMerged, kJoint}) {
    StepInput step(static_cast<std::int32_t>(shapes.size()));
    step.header().n_rows = n_rows;
    step.header().section(SectionKind::samples).count = n_rows;
    bool has_larger = false;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      LayerGroupHeader& group = step.group(static_cast<int>(i));
      group.section(SectionKind::kv_indices).count = n_rows;
      group.n_partials = variant == kDirect ? 0 : 1;
      group.n_larger_workers = variant == kJoint ? joint_workers(shapes[i], costs, n_rows) : 0;
      has_larger |= group.n_larger_workers > 0;
    }
    step.finish();
    if (variant != kJoint || has_larger) steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace baton
