/// Computes the size of the largest step and checks steps against the bounds.
#include "kernels/batch.h"

#include <algorithm>

#include <fmt/format.h>

namespace baton {

std::size_t StepBounds::size_bytes() const {
  std::size_t total = sizeof(StepHeader) + static_cast<std::size_t>(n_groups) * sizeof(LayerGroupHeader);
  // Kinds that share a bound are counted as if all their elements were of the largest kind.
  std::size_t shared_bytes = 0;
  for (std::size_t i = 0; i < kSections.size(); ++i) {
    const SectionInfo& info = kSections[i];
    const auto count = static_cast<std::size_t>(this->*info.max_count + info.n_more);
    const std::size_t bytes = count * static_cast<std::size_t>(info.element_bytes);
    const std::size_t n_sections = i < kStepKinds ? 1 : static_cast<std::size_t>(n_groups);
    total += n_sections * (kSectionAlignment - 1);
    if (info.shares_bound)
      shared_bytes = std::max(shared_bytes, bytes);
    else
      total += n_sections * bytes;
  }
  return total + shared_bytes;
}

std::size_t StepBounds::mask_rows_bytes() const {
  const std::size_t bytes = static_cast<std::size_t>(max_masks) * sizeof(std::int32_t);
  return (bytes + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
}

std::size_t StepBounds::masks_bytes() const {
  return mask_rows_bytes() + static_cast<std::size_t>(max_masks) * static_cast<std::size_t>(mask_words) * sizeof(std::uint32_t);
}

std::optional<std::string> find_excess(const StepView& step, const StepBounds& bounds) {
  if (step.header->n_groups > bounds.n_groups)
    return fmt::format("the step has {} layer groups, over its bound of {}", step.header->n_groups, bounds.n_groups);
  std::int64_t n_sharing = 0;
  for (const SectionInfo& info : kSections) {
    const bool is_of_group = static_cast<std::size_t>(info.kind) >= kStepKinds;
    const std::int64_t most = std::int64_t{bounds.*info.max_count} + info.n_more;
    for (int group = 0; group < (is_of_group ? step.header->n_groups : 1); ++group) {
      std::int64_t count = step.count(info.kind, group);
      if (info.shares_bound) count = n_sharing += count;
      if (count > most)
        return fmt::format("the step has {} {}{}, over its bound of {}", count, info.name,
                           info.shares_bound ? " and entries of other lists" : "", most);
    }
  }
  return std::nullopt;
}

}  // namespace baton
