/// Chooses the tools that count, and asks the model's format for the grammar.
#include "server/served/tool_grammar.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace baton {
namespace {

using parsers::Tool;
using Kind = parsers::ToolChoice::Kind;

/// The tools that may be called. Those of `allowed_tools` are strict, because only a grammar keeps out the others.
std::vector<Tool> callable_tools(const ToolFields& fields) {
  if (fields.allowed.empty()) return *fields.tools;
  std::vector<Tool> tools;
  for (const Tool& tool : *fields.tools) {
    if (!fields.allowed.contains(tool.name)) continue;
    tools.push_back(tool);
    tools.back().is_strict = true;
  }
  return tools;
}

}  // namespace

Result<void> demand_calls(const ServedModel& model, ChatRequest& request) {
  const ToolFields& fields = request.tools;
  if (!fields.tools || fields.choice.kind == Kind::none) return {};
  std::optional<StructuredOutput>& grammar = request.generation.grammar;
  const bool is_free = fields.choice.kind == Kind::automatic;
  const std::vector<Tool> tools = callable_tools(fields);
  parsers::AnswerDemand demand{.tools = tools,
                               .choice = fields.choice,
                               .is_parallel = fields.is_parallel,
                               .content = std::nullopt,
                               .special_tokens = model.marker_texts};
  std::shared_ptr<const StructuredOutput> content;
  if (is_free && grammar) {
    demand.content = grammar->source;
    content = std::make_shared<const StructuredOutput>(*grammar);
  }
  auto made = model.format.grammar(demand);
  if (!made) {
    Error error = std::move(made.error());
    error.code = ErrorCode::invalid_request;
    if (error.param.empty()) error.param = content != nullptr ? content->field : is_free ? "tools" : "tool_choice";
    return tl::unexpected<Error>(std::move(error));
  }
  if (*made) grammar = StructuredOutput{std::move(**made), "tools", std::move(content)};
  return {};
}

}  // namespace baton
