/// Chooses which steps are captured and which graph runs a step.
#include "engine/step/captured_steps.h"

#include <algorithm>
#include <bit>

#include "core/check.h"

namespace baton {
namespace {

/// A step of `n_rows` sampled rows for capturing. Operations read its sizes only, never its sections. `wide_workers`: of each
/// group, for the kernel with wide tiles.
StepInput step_to_capture(std::int32_t n_rows, bool has_partials, std::span<const std::int32_t> wide_workers) {
  const auto n_groups = static_cast<std::int32_t>(wide_workers.size());
  StepInput step(n_groups);
  step.header().n_rows = n_rows;
  step.header().section(SectionKind::samples).count = n_rows;
  for (int group = 0; group < n_groups; ++group) {
    step.group(group).section(SectionKind::kv_indices).count = n_rows;
    step.group(group).n_partials = has_partials ? 1 : 0;
    step.group(group).n_wide_workers = wide_workers[static_cast<std::size_t>(group)];
  }
  step.finish();
  return step;
}

/// The workers for wide tiles of each group's steps of `n_rows` rows, if they read shared runs of the group.
std::vector<std::int32_t> wide_workers_of(std::span<const AttentionShape> shapes, const AttentionCosts& costs,
                                          std::int32_t n_rows) {
  std::vector<std::int32_t> n_of_group;
  for (const AttentionShape& shape : shapes)
    n_of_group.push_back(wide_tiles_join(costs, shape) && n_rows > rows_a_read(costs, shape) ? costs.n_wide_workers : 0);
  return n_of_group;
}

}  // namespace

std::vector<std::int32_t> CapturedSteps::sizes(std::int32_t max_rows) {
  std::vector<std::int32_t> sizes;
  for (std::int32_t n = 1; n < max_rows;) {
    sizes.push_back(n);
    n += n < 8 ? n : std::max(8, static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(n))) / 4);
  }
  if (max_rows > 0) sizes.push_back(max_rows);
  return sizes;
}

Result<std::unique_ptr<CapturedSteps>> CapturedSteps::make(Backend& backend, Model& model, TensorView slots, TensorView results,
                                                           const TokenMasks& masks, std::span<KvStorage* const> kv_of_group,
                                                           std::int32_t max_rows) {
  std::unique_ptr<CapturedSteps> made(new CapturedSteps);
  const KvShape& kv = kv_of_group.front()->shape();
  const AttentionCosts costs = backend.tuning().attention_costs;
  const std::vector<AttentionShape> shapes = model.attention_shapes(kv.block_len, kv.dtype);
  const std::vector<std::int32_t> no_workers(kv_of_group.size(), 0);
  check(shapes.size() == kv_of_group.size(), "CapturedSteps: a storage for each layer group");
  // A backend whose graphs are plain calls builds them for each step, at the step's own size.
  for (const std::int32_t n_rows : sizes(max_rows)) {
    const auto capture = [&](bool has_partials, const std::vector<std::int32_t>& wide_workers) -> Result<void> {
      auto entry = std::make_unique<Entry>(Entry{n_rows, has_partials, wide_workers != no_workers, {}, {}, nullptr});
      const StepInput step = step_to_capture(n_rows, has_partials, wide_workers);
      entry->step = backend.upload_step(step);
      BATON_TRY(entry->graph, backend.capture([&backend, &model, slots, kv_of_group, entry = entry.get()] {
        entry->logits = model.forward(backend, entry->step, slots, kv_of_group);
      }));
      made->forwards_.push_back(std::move(entry));
      return {};
    };
    for (const bool has_partials : {false, true}) BATON_TRY_VOID(capture(has_partials, no_workers));
    const std::vector<std::int32_t> wide_workers = wide_workers_of(shapes, costs, n_rows);
    if (wide_workers != no_workers) BATON_TRY_VOID(capture(true, wide_workers));
    auto entry = std::make_unique<Entry>(Entry{n_rows, true, false, {}, made->forwards_.back()->logits, nullptr});
    const StepInput step = step_to_capture(n_rows, true, no_workers);
    entry->step = backend.upload_step(step);
    BATON_TRY(entry->graph, backend.capture([&backend, slots, results, masks, entry = entry.get()] {
      baton::sample(backend, {entry->step, entry->logits.rows(0, entry->step.n_samples()), slots, results, masks});
    }));
    made->samples_.push_back(std::move(entry));
  }
  backend.synchronize();
  return made;
}

std::optional<TensorView> CapturedSteps::forward(const StepView& step) {
  const StepHeader& header = *step.header;
  if (header.n_rows == 0 || step.n_samples() != header.n_rows) return std::nullopt;
  bool has_partials = false;
  bool has_wide = false;
  for (int group = 0; group < header.n_groups; ++group) {
    if (step.group(group).has_wide_tiles != 0) return std::nullopt;  // graphs hold the kernel with small tiles
    has_partials |= step.group(group).n_partials > 0;
    has_wide |= step.group(group).n_wide_workers > 0;
  }
  const auto found = std::ranges::find_if(forwards_, [&](const std::unique_ptr<Entry>& entry) {
    return entry->n_rows >= header.n_rows && entry->has_partials == has_partials && entry->has_wide == has_wide;
  });
  if (found == forwards_.end()) return std::nullopt;
  Entry& entry = **found;
  entry.step = step;
  entry.graph->replay();
  return entry.logits.rows(0, step.n_samples());
}

bool CapturedSteps::sample(const StepView& step, TensorView logits) {
  const auto found =
      std::ranges::find_if(samples_, [&](const std::unique_ptr<Entry>& entry) { return entry->n_rows >= step.n_samples(); });
  if (found == samples_.end()) return false;
  Entry& entry = **found;
  check(entry.logits.data == nullptr || entry.logits.data == logits.data, "CapturedSteps: logits where no graph samples from");
  entry.step = step;
  entry.logits = logits;
  entry.graph->replay();
  return true;
}

}  // namespace baton
