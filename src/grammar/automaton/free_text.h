/// Texts by the markers that they do not have.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "grammar/automaton/dfa.h"

namespace baton::grammar {

/// What free text stops at. The texts are sequences of any bytes; where two of these end together, the longer counts.
struct TextStops {
  std::vector<std::string_view> stops;  ///< end the text, and belong to it; not empty
  std::vector<std::string_view> never;  ///< are nowhere in it; not empty
};

/// The texts without any of `stops` and `never`. Errors: too_large (Dfa::kMaxStates), the budget's.
Result<Dfa> text_without(const TextStops& texts, WorkMeter& meter);
/// The texts that end with the first of `stops` that they have, where it is `stops[which]`, or any without `which`.
/// Errors: the same.
Result<Dfa> text_up_to(const TextStops& texts, std::optional<std::size_t> which, WorkMeter& meter);

}  // namespace baton::grammar
