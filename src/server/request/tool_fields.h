/// The fields of a chat request that say which tools the model may or must call.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/limits/work_budget.h"
#include "core/result.h"
#include "io/json.h"
#include "parsers/message_format.h"

namespace baton {

inline constexpr std::size_t kMaxTools = 1024;
inline constexpr std::size_t kMaxToolBytes = std::size_t{1} << 20;  ///< of their JSON text
inline constexpr std::size_t kMaxToolNameBytes = 128;
/// Of reading the schemas of all tools for the answer's parser, which is linear: tools within kMaxToolBytes need less than a third.
inline constexpr WorkLimits kToolLimits{.steps = std::int64_t{1} << 24, .bytes = std::int64_t{96} << 20};

struct ToolFields {
  json::Value definitions;                                  ///< a list of functions, for templates; null: none
  std::shared_ptr<const std::vector<parsers::Tool>> tools;  ///< null: none
  parsers::ToolChoice choice{parsers::ToolChoice::Kind::none};
  std::set<std::string> custom;   ///< names of tools that take a text: see custom_tools.h
  std::set<std::string> allowed;  ///< names of `allowed_tools`; empty: all
  bool is_parallel = true;        ///< the answer may have several calls
};

/// Reads `tools`, `tool_choice` and `parallel_tool_calls`. Errors (invalid_request) name the field in `param`.
Result<ToolFields> parse_tool_fields(const json::Value& body);

/// The error of a request that cannot have tools (a plain completion) for the first of these fields that asks for one. It says that
/// the path `conversations_at` has them, if there is one.
Result<void> refuse_tool_fields(const json::Value& body, std::string_view conversations_at);

}  // namespace baton
