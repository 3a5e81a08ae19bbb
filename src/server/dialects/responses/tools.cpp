/// Kinds of tools, one function for each direction.
#include "server/dialects/responses/tools.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "io/json_parse.h"
#include "server/dialects/responses/items.h"
#include "server/request/json_fields.h"
#include "server/request/tool_fields.h"

namespace baton {
namespace {

using json::Value;
using Kind = ResponseTool::Kind;

/// Tools that the client runs and that have no name and no schema of their own, as functions.
struct TypedTool {
  std::string_view type;
  Kind kind;
  std::string_view name;
  std::string_view description;
  std::string_view parameters;  ///< JSON text
};
constexpr TypedTool kTypedTools[] = {
    {"local_shell", Kind::local_shell, "local_shell", "Runs a command on the user's computer and returns its output.",
     R"({"type":"object","properties":{"command":{"type":"array","items":{"type":"string"},"description":"The program and its arguments."},"working_directory":{"type":"string"},"timeout_ms":{"type":"integer"}},"required":["command"]})"},
    {"shell", Kind::shell, "shell", "Runs commands in a shell of the user's computer and returns their output.",
     R"({"type":"object","properties":{"commands":{"type":"array","items":{"type":"string"}},"timeout_ms":{"type":"integer"},"max_output_length":{"type":"integer"}},"required":["commands"]})"},
    {"apply_patch", Kind::apply_patch, "apply_patch", "Creates, changes or deletes a file. A change is a diff in V4A format.",
     R"({"type":"object","properties":{"type":{"type":"string","enum":["create_file","update_file","delete_file"]},"path":{"type":"string"},"diff":{"type":"string"}},"required":["type","path"]})"},
};
constexpr std::string_view kToolSearch = "tool_search";
constexpr std::string_view kSearchParameters =
    R"({"type":"object","properties":{"query":{"type":"string"}},"required":["query"]})";

const TypedTool* typed_tool(std::string_view type) {
  const auto found = std::ranges::find(kTypedTools, type, &TypedTool::type);
  return found == std::end(kTypedTools) ? nullptr : found;
}

/// Whether a tool of this type and these members runs where the client is.
bool is_hosted(const Value& tool, std::string_view type) {
  if (type == kToolSearch) {
    const Value* execution = find_given(tool, "execution");
    return execution == nullptr || !json::is_text(*execution, "client");
  }
  if (type != "shell") return typed_tool(type) == nullptr;
  const Value* environment = find_given(tool, "environment");
  const Value* where = environment == nullptr ? nullptr : find_given(*environment, "type");
  return where != nullptr && !json::is_text(*where, "local");
}

class ToolReader {
 public:
  ToolReader(bool is_first, ResponseTools& tools) : is_first_(is_first), tools_(tools) {}

  Result<void> read(const Value& tool, const std::string& key, const std::string& name_space, const std::string& about) {
    if (!tool.is_object()) return json::wrong_type(key, "an object", tool);
    BATON_TRY(const std::string type, string_member(tool, "type", key));
    if (type == "function" || type == "custom") return read_named(tool, type, key, name_space, about);
    if (type == "namespace" && name_space.empty()) return read_namespace(tool, key);
    if (is_hosted(tool, type)) {
      tools_.left_out.push_back(type);
      return {};
    }
    if (type == kToolSearch) return read_search(tool, key);
    const TypedTool& typed = *typed_tool(type);
    Value function;
    function["name"] = std::string(typed.name);
    function["description"] = std::string(typed.description);
    function["parameters"] = *json::parse(typed.parameters, "a schema");
    add(std::move(function), {typed.kind, std::string(typed.name)}, key);
    return {};
  }

 private:
  Result<void> read_named(const Value& tool, const std::string& type, const std::string& key, const std::string& name_space,
                          const std::string& about) {
    Value function;
    const bool is_custom = type == "custom";
    if (is_custom) {
      BATON_TRY(function, custom_function(tool, key));
    } else {
      BATON_TRY(function["name"], string_member(tool, "name", key));
      for (const char* const member : {"description", "parameters", "strict"})
        if (const Value* value = find_given(tool, member)) function[member] = *value;
    }
    const std::string name = function["name"];
    if (!name_space.empty()) function["name"] = shown_tool_name(name_space, name);
    if (!about.empty()) {
      const Value* own = find_given(function, "description");
      function["description"] = own != nullptr && own->is_string() ? about + "\n\n" + own->get<std::string>() : about;
    }
    add(std::move(function), {is_custom ? Kind::custom : Kind::function, name, name_space}, key);
    return {};
  }

  Result<void> read_namespace(const Value& tool, const std::string& key) {
    BATON_TRY(const std::string name, string_member(tool, "name", key));
    if (name.empty()) return bad_field(key + ".name", "must not be empty");
    BATON_TRY(const auto about, json::get_optional<std::string>(tool, "description"));
    const Value* members = find_given(tool, "tools");
    if (members == nullptr || !members->is_array()) return bad_field(key + ".tools", "must be a list of tools");
    for (std::size_t i = 0; i < members->size(); ++i)
      BATON_TRY_VOID(read((*members)[i], fmt::format("{}.tools[{}]", key, i), name, about.value_or("")));
    return {};
  }

  Result<void> read_search(const Value& tool, const std::string& key) {
    Value function;
    function["name"] = std::string(kToolSearch);
    BATON_TRY(const auto about, json::get_optional<std::string>(tool, "description"));
    function["description"] = about.value_or("Finds more tools by what they do.");
    const Value* parameters = find_given(tool, "parameters");
    function["parameters"] = parameters == nullptr ? *json::parse(kSearchParameters, "a schema") : *parameters;
    add(std::move(function), {Kind::tool_search, std::string(kToolSearch)}, key);
    return {};
  }

  void add(Value function, ResponseTool tool, const std::string& key) {
    const std::string name = function["name"];
    const bool is_new = tools_.by_name.emplace(name, std::move(tool)).second;
    if (is_first_ && !is_new) return;
    Value made;
    made["type"] = "function";
    made["function"] = std::move(function);
    tools_.functions.push_back(std::move(made));
    tools_.keys.push_back(key);
  }

  const bool is_first_;
  ResponseTools& tools_;
};

/// The function that a choice {"type", "name"?, "namespace"?} names, as a chat completion has it. nullopt: the tool is left out.
Result<std::optional<Value>> named_function(const Value& given, const std::string& key, const ResponseTools& tools) {
  if (!given.is_object()) return json::wrong_type(key, "an object", given);
  BATON_TRY(const std::string type, string_member(given, "type", key));
  std::string name;
  if (type == "function" || type == "custom") {
    BATON_TRY(name, string_member(given, "name", key));
    BATON_TRY(const auto name_space, json::get_optional<std::string>(given, "namespace"));
    if (name_space) {
      name = shown_tool_name(*name_space, name);
    } else if (!tools.by_name.contains(name)) {
      const auto inside = std::ranges::find_if(tools.by_name, [&](const auto& tool) { return tool.second.name == name; });
      if (inside != tools.by_name.end()) name = inside->first;
    }
  } else if (tools.by_name.contains(type) && (typed_tool(type) != nullptr || type == kToolSearch)) {
    name = type;
  } else {
    return std::optional<Value>();
  }
  Value named;
  named["type"] = "function";
  named["function"]["name"] = std::move(name);
  return std::optional(std::move(named));
}

tl::unexpected<Error> not_run_here(const std::string& key, const Value& choice) {
  const Value* type = find_given(choice, "type");
  return bad_field(key + ".type", "is {}, and this server runs no tools: it supports tools that the client runs",
                   type == nullptr ? "null" : json::dump(*type).substr(0, 40));
}

Result<void> set_allowed(const Value& choice, const ResponseTools& tools, Value& chat) {
  const Value* listed = find_given(choice, "tools");
  if (listed == nullptr || !listed->is_array()) return bad_field("tool_choice.tools", "must be a list of tools");
  Value allowed;
  BATON_TRY(allowed["mode"], string_member(choice, "mode", "tool_choice"));
  allowed["tools"] = Value::array();
  for (std::size_t i = 0; i < listed->size(); ++i) {
    BATON_TRY(std::optional<Value> named, named_function((*listed)[i], fmt::format("tool_choice.tools[{}]", i), tools));
    if (named) allowed["tools"].push_back(std::move(*named));
  }
  if (!listed->empty() && allowed["tools"].empty()) {
    if (allowed["mode"] == "required") return not_run_here("tool_choice.tools[0]", (*listed)[0]);
    chat["tool_choice"] = "none";
    return {};
  }
  chat["tool_choice"]["type"] = "allowed_tools";
  chat["tool_choice"]["allowed_tools"] = std::move(allowed);
  return {};
}

/// What a text says as JSON, if that is an object.
Value object_or_empty(std::string_view text) {
  auto parsed = json::parse_exact(text, "the arguments");
  return parsed && parsed->is_object() ? std::move(*parsed) : Value::object();
}

Value member_or(const Value& object, std::string_view name, Value otherwise) {
  const Value* found = find_given(object, name);
  return found == nullptr ? otherwise : *found;
}

}  // namespace

std::string shown_tool_name(std::string_view name_space, std::string_view name) {
  if (name_space.empty()) return std::string(name);
  return fmt::format("{}{}{}", name_space, name_space.ends_with('_') || name_space.ends_with('.') ? "" : "__", name);
}

std::string_view function_of(Kind kind) {
  const auto found = std::ranges::find(kTypedTools, kind, &TypedTool::kind);
  return found == std::end(kTypedTools) ? kToolSearch : found->name;
}

Result<void> add_response_tools(const Value& list, const std::string& key, bool is_first, ResponseTools& tools) {
  if (!list.is_array()) return json::wrong_type(key, "a list of tools", list);
  ToolReader reader(is_first, tools);
  for (std::size_t i = 0; i < list.size(); ++i) BATON_TRY_VOID(reader.read(list[i], fmt::format("{}[{}]", key, i), {}, {}));
  return {};
}

Result<void> set_response_tools(const Value& body, const ResponseTools& tools, Value& chat) {
  if (!tools.functions.empty()) chat["tools"] = tools.functions;
  const std::string key = "tool_choice";
  const Value* choice = find_given(body, key);
  if (choice == nullptr) return {};
  if (choice->is_string()) {
    if (*choice == "required" && tools.functions.empty() && !tools.left_out.empty())
      return bad(key, "'tool_choice' is \"required\", and this server runs none of the tools (\"{}\")",
                 tools.left_out.front().substr(0, 40));
    chat[key] = *choice;
    return {};
  }
  if (const Value* type = find_given(*choice, "type"); type != nullptr && json::is_text(*type, "allowed_tools"))
    return set_allowed(*choice, tools, chat);
  BATON_TRY(std::optional<Value> named, named_function(*choice, key, tools));
  if (!named) return not_run_here(key, *choice);
  chat[key] = std::move(*named);
  return {};
}

Value new_call_item(const ResponseTool* tool, std::string_view shown_name, std::string_view call_id) {
  const Kind kind = tool == nullptr ? Kind::function : tool->kind;
  const std::string_view type = kind == Kind::custom        ? "custom_tool_call"
                                : kind == Kind::local_shell ? "local_shell_call"
                                : kind == Kind::shell       ? "shell_call"
                                : kind == Kind::apply_patch ? "apply_patch_call"
                                : kind == Kind::tool_search ? "tool_search_call"
                                                            : "function_call";
  Value item;
  item["id"] = new_item_id(type);
  item["type"] = std::string(type);
  item["status"] = "in_progress";
  item["call_id"] = std::string(call_id);
  if (kind == Kind::function || kind == Kind::custom) {
    item["name"] = tool == nullptr ? std::string(shown_name) : tool->name;
    if (tool != nullptr && !tool->name_space.empty()) item["namespace"] = tool->name_space;
    item[kind == Kind::custom ? "input" : "arguments"] = "";
  } else {
    complete_call_item(tool, "", item);
  }
  return item;
}

void complete_call_item(const ResponseTool* tool, std::string_view arguments, Value& item) {
  const Kind kind = tool == nullptr ? Kind::function : tool->kind;
  if (kind == Kind::function) {
    item["arguments"] = std::string(arguments);
    return;
  }
  if (kind == Kind::custom) {
    CustomInput input;
    std::string text = input.take(arguments);
    item["input"] = text + input.end();
    return;
  }
  const Value given = object_or_empty(arguments);
  if (kind == Kind::tool_search) {
    item["execution"] = "client";
    item["arguments"] = given;
  } else if (kind == Kind::apply_patch) {
    item["operation"] = given;
  } else if (kind == Kind::shell) {
    Value& action = item["action"];
    action["commands"] = member_or(given, "commands", Value::array());
    action["timeout_ms"] = member_or(given, "timeout_ms", nullptr);
    action["max_output_length"] = member_or(given, "max_output_length", nullptr);
  } else {
    Value& action = item["action"];
    action["type"] = "exec";
    action["command"] = member_or(given, "command", Value::array());
    action["env"] = Value::object();
    action["timeout_ms"] = member_or(given, "timeout_ms", nullptr);
    action["working_directory"] = member_or(given, "working_directory", nullptr);
    action["user"] = nullptr;
  }
}

}  // namespace baton
