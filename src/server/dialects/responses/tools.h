/// Tools of the Responses dialect: what the model sees of them, and how their calls appear in a conversation.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "io/json.h"

namespace baton {

/// A tool that the client runs. To the model each is a function.
struct ResponseTool {
  enum class Kind : std::uint8_t { function, custom, local_shell, shell, apply_patch, tool_search };
  Kind kind = Kind::function;
  std::string name = {};        ///< as the client calls it
  std::string name_space = {};  ///< of which it is; empty: none
};

/// The tools of a request.
struct ResponseTools {
  json::Value functions = json::Value::array();              ///< `tools` of a chat completion
  std::vector<std::string> keys;                             ///< what the client calls each of them: "tools[1].tools[0]"
  std::map<std::string, ResponseTool, std::less<>> by_name;  ///< by the names that the model uses
  std::vector<std::string> left_out;                         ///< types of tools that only a hosted server runs
};

/// Adds the tools of a list, which errors call `key`. A namespace is a list of functions; tools that only a hosted
/// server runs are left out. `is_first`: of tools with one name the first counts, as where a conversation brings them a
/// second time; otherwise that is left to the chat completion. Errors (invalid_request) name the tool.
Result<void> add_response_tools(const json::Value& list, const std::string& key, bool is_first, ResponseTools& tools);

/// Sets `tools` and `tool_choice` of a chat completion. Errors (invalid_request): a choice that demands a tool which is
/// left out.
Result<void> set_response_tools(const json::Value& body, const ResponseTools& tools, json::Value& chat);

/// The name that the model uses for a function of a namespace.
std::string shown_tool_name(std::string_view name_space, std::string_view name);

/// Names of the functions that stand for tools without a name.
std::string_view function_of(ResponseTool::Kind kind);

/// The item of a call that has just begun, and its name for the model.
json::Value new_call_item(const ResponseTool* tool, std::string_view shown_name, std::string_view call_id);
/// Sets what a call says in its item. Arguments that are not an object are given as they are, where the item has a
/// place for them.
void complete_call_item(const ResponseTool* tool, std::string_view arguments, json::Value& item);

}  // namespace baton
