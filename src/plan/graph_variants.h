/// Variants of decode steps: which kernels their attention launches. A captured graph fixes them, so each variant has graphs
/// of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attention_costs.h"
#include "kernels/batch.h"

namespace baton {

/// The variant of a step that append_plan made. Nothing if its plan has none: the step must be launched.
std::optional<std::size_t> graph_variant(const StepView& step);

/// Steps of `n_rows` sampled rows to capture graphs with. Element k is of variant k, and any plan for layer groups of these
/// shapes has a variant of the list or none. Operations read the sizes of these steps only, never their sections.
std::vector<StepInput> steps_to_capture(std::int32_t n_rows, std::span<const AttentionShape> shapes,
                                        const AttentionCosts& costs);

}  // namespace baton
