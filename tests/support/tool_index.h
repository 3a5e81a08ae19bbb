/// Tools as parsers of answers need them.
#pragma once

#include <memory>
#include <vector>

#include "core/limits/work_budget.h"
#include "parsers/message_format.h"
#include "parsers/tool_index.h"

namespace baton::testing {

/// An index of the tools, with the kinds of their arguments.
inline std::shared_ptr<const parsers::ToolIndex> index_of(const std::vector<parsers::Tool>& tools) {
  UnlimitedWork work;
  return parsers::ToolIndex::make(tools, /*has_kinds=*/true, work.budget()).value();
}

}  // namespace baton::testing
