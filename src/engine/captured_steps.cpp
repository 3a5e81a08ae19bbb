/// Which steps are recorded, and which graph serves a step.
#include "engine/captured_steps.h"

#include <algorithm>
#include <bit>

#include "core/check.h"

namespace baton {
namespace {

/// What the operations ask a step for when they are recorded: `n_rows` sampled rows. Its sections are never read.
StepInput step_to_record(std::int32_t n_rows, std::size_t n_groups, bool has_partials) {
  StepInput step;
  StepHeader& header = step.header();
  header.n_rows = n_rows;
  header.n_groups = static_cast<std::int32_t>(n_groups);
  header.samples.count = n_rows;
  for (std::size_t group = 0; group < n_groups; ++group) {
    header.groups[group].kv_indices.count = n_rows;
    header.groups[group].n_partials = has_partials ? 1 : 0;
  }
  step.finish();
  return step;
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

Result<std::unique_ptr<CapturedSteps>> CapturedSteps::make(Backend& backend, Model& model, TensorView slots,
                                                           std::span<KvStorage* const> kv_of_group, std::int32_t max_rows) {
  std::unique_ptr<CapturedSteps> made(new CapturedSteps);
  for (const std::int32_t n_rows : sizes(max_rows)) {
    for (const bool has_partials : {false, true}) {
      auto entry = std::make_unique<Entry>(Entry{n_rows, has_partials, {}, {}, nullptr});
      const StepInput step = step_to_record(n_rows, kv_of_group.size(), has_partials);
      entry->step = backend.upload_step(step);
      // A backend whose graphs are the calls themselves makes them anew for each step, at its own size.
      BATON_TRY(entry->graph, backend.capture([&backend, &model, slots, kv_of_group, entry = entry.get()] {
        entry->logits = model.forward(backend, entry->step, slots, kv_of_group);
      }));
      made->entries_.push_back(std::move(entry));
    }
  }
  backend.synchronize();
  return made;
}

std::optional<TensorView> CapturedSteps::replay(const StepView& step) {
  const StepHeader& header = *step.header;
  if (header.n_rows == 0 || header.samples.count != header.n_rows) return std::nullopt;
  const auto groups = std::span(header.groups).first(static_cast<std::size_t>(header.n_groups));
  const bool has_partials = std::ranges::any_of(groups, [](const LayerGroupSections& group) { return group.n_partials > 0; });
  const auto found = std::ranges::find_if(entries_, [&](const std::unique_ptr<Entry>& entry) {
    return entry->n_rows >= header.n_rows && entry->has_partials == has_partials;
  });
  if (found == entries_.end()) return std::nullopt;
  Entry& entry = **found;
  entry.step = step;
  entry.graph->replay();
  return entry.logits.rows(0, header.samples.count);
}

}  // namespace baton
