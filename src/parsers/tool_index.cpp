/// Reading tools.
#include "parsers/tool_index.h"

#include <utility>

#include "parsers/message_format.h"

namespace baton::parsers {

Result<std::shared_ptr<const ToolIndex>> ToolIndex::make(std::span<const Tool> tools, bool has_kinds, WorkBudget& budget) {
  constexpr std::size_t kToolBytes = 160;
  auto index = std::make_shared<ToolIndex>();
  WorkMeter meter(budget);
  for (const Tool& tool : tools) {
    ArgumentKinds kinds = has_kinds ? ArgumentKinds(tool.parameters, meter) : ArgumentKinds();
    const std::size_t n_bytes = kToolBytes + tool.name.size();
    if (!meter.pass(16 * tool.name.size()) || !meter.write(n_bytes))
      return tl::unexpected<Error>(budget.error("reading the tools"));
    index->n_bytes_ += n_bytes + kinds.n_bytes();
    index->tools_.insert_or_assign(tool.name, std::move(kinds));
  }
  return index;
}

}  // namespace baton::parsers
