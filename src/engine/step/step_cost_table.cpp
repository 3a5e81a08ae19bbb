/// Interpolation in a grid of measured steps.
#include "engine/step/step_cost_table.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace baton {
namespace {

/// Two neighbouring places of an axis, and how much the second one counts: over 1 beyond the end.
struct Between {
  std::size_t first = 0;
  double share = 0;
};

Between place_on(const std::vector<double>& axis, double value) {
  const auto above = std::ranges::upper_bound(axis, value) - axis.begin();
  const auto first = static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(above - 1, 0, std::ssize(axis) - 2));
  return {first, (value - axis[first]) / (axis[first + 1] - axis[first])};
}

}  // namespace

std::optional<StepCostTable> StepCostTable::make(const std::vector<Entry>& entries, std::string& fault) {
  StepCostTable table;
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> places;  // in entries
  std::set<std::int32_t> decodes, prompt_tokens;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    const auto fault_of = [&](const std::string& what) {
      fault = fmt::format("steps[{}]: a step of {} decodes and {} prompt tokens {}", i, entry.n_decodes, entry.n_prompt_tokens,
                          what);
      return std::nullopt;
    };
    if (!(entry.seconds > 0) || !std::isfinite(entry.seconds) || entry.n_decodes < 0 || entry.n_prompt_tokens < 0)
      return fault_of(fmt::format("cannot take {} s", entry.seconds));
    if (const auto [other, is_new] = places.try_emplace({entry.n_decodes, entry.n_prompt_tokens}, i); !is_new)
      return fault_of(fmt::format("is steps[{}] already", other->second));
    decodes.insert(entry.n_decodes);
    prompt_tokens.insert(entry.n_prompt_tokens);
  }
  if (decodes.size() < 2 || prompt_tokens.size() < 2 || *prompt_tokens.begin() != 0) {
    fault = "times are needed for at least two numbers of decodes, and for 0 and another number of prompt tokens";
    return std::nullopt;
  }
  for (const std::int32_t n_decodes : decodes) {
    for (const std::int32_t n_tokens : prompt_tokens) {
      const auto at = places.find({n_decodes, n_tokens});
      // A step without rows: it takes what the smallest prompt takes.
      const auto found =
          at != places.end() || n_decodes + n_tokens > 0 ? at : places.find({0, *std::next(prompt_tokens.begin())});
      if (found == places.end()) {
        fault = fmt::format("the time of a step of {} decodes and {} prompt tokens is missing", n_decodes, n_tokens);
        return std::nullopt;
      }
      table.seconds_.push_back(entries[found->second].seconds);
    }
  }
  table.decodes_.assign(decodes.begin(), decodes.end());
  table.prompt_tokens_.assign(prompt_tokens.begin(), prompt_tokens.end());
  return table;
}

double StepCostTable::seconds(std::int32_t n_decodes, std::int32_t n_prompt_tokens) const {
  const Between row = place_on(decodes_, n_decodes);
  const Between column = place_on(prompt_tokens_, n_prompt_tokens);
  const auto along = [&](std::size_t place) {
    const double* const of_row = seconds_.data() + place * prompt_tokens_.size() + column.first;
    return of_row[0] + (of_row[1] - of_row[0]) * column.share;
  };
  const double first = along(row.first);
  return std::max(first + (along(row.first + 1) - first) * row.share, *std::ranges::min_element(seconds_));
}

}  // namespace baton
