/// The tools of a request as parsers of answers need them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "parsers/argument_kinds.h"

namespace baton::parsers {

struct Tool;

/// Names of tools, and the kinds of their arguments. It keeps no schemas: all that is to be learnt from them is learnt when it is
/// made, so that a parser of an answer only looks up names. Immutable. Thread: any.
class ToolIndex {
 public:
  /// `has_kinds`: the kinds of arguments are read from the schemas; otherwise all arguments are strings. Errors: those of `budget`.
  static Result<std::shared_ptr<const ToolIndex>> make(std::span<const Tool> tools, bool has_kinds, WorkBudget& budget);

  /// The kinds of a tool's arguments; null: there is no such tool.
  const ArgumentKinds* find(std::string_view tool) const {
    const auto found = tools_.find(tool);
    return found == tools_.end() ? nullptr : &found->second;
  }
  /// Whether some tool's name begins so.
  bool has_name_with(std::string_view begin) const {
    const auto found = tools_.lower_bound(begin);
    return found != tools_.end() && found->first.starts_with(begin);
  }
  /// About how much memory it takes.
  std::size_t n_bytes() const { return n_bytes_; }

 private:
  std::map<std::string, ArgumentKinds, std::less<>> tools_;
  std::size_t n_bytes_ = 0;
};

}  // namespace baton::parsers
