/// Chooses which steps are captured and which graph runs a step.
#include "engine/step/captured_steps.h"

#include <algorithm>
#include <bit>

#include "core/check.h"
#include "plan/graph_variants.h"

namespace baton {

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
                                                           StateStorage* states, std::int32_t max_rows) {
  std::unique_ptr<CapturedSteps> made(new CapturedSteps);
  const KvShape& kv = kv_of_group.front()->shape();
  const AttentionCosts costs = backend.tuning().attention_costs;
  const std::vector<AttentionShape> shapes = model.attention_shapes(kv.block_len, kv.dtype);
  check(shapes.size() == kv_of_group.size(), "CapturedSteps: a storage for each layer group");
  // A backend whose graphs are plain calls builds them for each step, at the step's own size.
  for (const std::int32_t n_rows : sizes(max_rows)) {
    const std::vector<StepInput> steps = steps_to_capture(n_rows, shapes, costs);
    for (std::size_t variant = 0; variant < steps.size(); ++variant) {
      auto entry = std::make_unique<Entry>(Entry{n_rows, variant, backend.upload_step(steps[variant]), {}, nullptr});
      BATON_TRY(entry->graph, backend.capture([&backend, &model, slots, kv_of_group, states, entry = entry.get()] {
        entry->logits = model.forward(backend, entry->step, slots, kv_of_group, states);
      }));
      made->forwards_.push_back(std::move(entry));
    }
    const TensorView logits = made->forwards_.back()->logits;
    auto entry = std::make_unique<Entry>(Entry{n_rows, 0, backend.upload_step(steps.front()), logits, nullptr});
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
  const std::optional<std::size_t> variant = graph_variant(step);
  const auto found = std::ranges::find_if(forwards_, [&](const std::unique_ptr<Entry>& entry) {
    return entry->n_rows >= header.n_rows && entry->variant == variant;
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
