/// Chooses the tools that count, and asks the model's format for the grammar.
#include "server/tool_grammar.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace baton {
namespace {

using parsers::Tool;
using Kind = parsers::ToolChoice::Kind;

/// The tools that may be called. Those of `allowed_tools` are strict, because only a grammar keeps out the others.
std::vector<Tool> callable_tools(const ToolFields& fields) {
  if (fields.allowed.empty()) return *fields.tools;
  std::vector<Tool> tools;
  for (const Tool& tool : *fields.tools) {
    if (std::ranges::find(fields.allowed, tool.name) == fields.allowed.end()) continue;
    tools.push_back(tool);
    tools.back().is_strict = true;
  }
  return tools;
}

}  // namespace

Result<void> demand_calls(const parsers::MessageFormat& format, ChatRequest& request) {
  const ToolFields& fields = request.tools;
  if (!fields.tools || fields.choice.kind == Kind::none) return {};
  const bool is_free = fields.choice.kind == Kind::automatic;
  if (is_free && request.generation.grammar)
    return fail(ErrorCode::invalid_request,
                fmt::format("'{}' is not supported by this server together with 'tools' that the model may call; set "
                            "'tool_choice' to \"none\" or \"required\"",
                            request.generation.grammar->field),
                request.generation.grammar->field);
  const bool is_strict = std::ranges::any_of(*fields.tools, &Tool::is_strict);
  if (is_free && fields.allowed.empty() && !is_strict) return {};
  auto made = format.grammar(callable_tools(fields), fields.choice, fields.is_parallel);
  if (!made) {
    Error error = std::move(made.error());
    error.code = ErrorCode::invalid_request;
    if (error.param.empty()) error.param = is_free ? "tools" : "tool_choice";
    return tl::unexpected<Error>(std::move(error));
  }
  if (*made) request.generation.grammar = StructuredOutput{std::move(**made), "tools"};
  return {};
}

}  // namespace baton
