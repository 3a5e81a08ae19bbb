/// Tools, one by one, and the forms of the choice.
#include "server/request/tool_fields.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "server/request/custom_tools.h"
#include "server/request/json_fields.h"

namespace baton {
namespace {

using json::Value;
using openai::bad;
using openai::find_given;
using parsers::Tool;
using parsers::ToolChoice;

constexpr std::string_view kToolChoices =
    "\"none\", \"auto\", \"required\", {\"type\": \"function\", \"function\": {\"name\": ...}}, {\"type\": \"custom\", "
    "\"custom\": {\"name\": ...}} or {\"type\": \"allowed_tools\", ...}";

bool is_tool_name(std::string_view name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= kMaxToolNameBytes && std::ranges::all_of(name, is_allowed);
}

/// The `type` of a tool or a choice, "function" or "custom": the name of the member that describes it.
Result<std::string> type_of(const Value& object, const std::string& key) {
  const Value* type = find_given(object, "type");
  if (type == nullptr) return std::string("function");
  if (!type->is_string()) return json::wrong_type(key + ".type", "a string", *type);
  const auto& word = type->get_ref<const std::string&>();
  if (word == "function" || word == "custom") return word;
  return bad(key + ".type", fmt::format("'{}.type' is \"{}\"; this server supports tools of the types \"function\" and "
                                        "\"custom\"",
                                        key, word.substr(0, 40)));
}

/// The member `function` or `custom` of a tool or a choice.
struct Described {
  std::string member;
  const Value* value = nullptr;
};
Result<Described> described(const Value& object, const std::string& key) {
  if (!object.is_object()) return json::wrong_type(key, "an object", object);
  BATON_TRY(std::string member, type_of(object, key));
  const Value* value = find_given(object, member);
  if (value == nullptr) return bad(fmt::format("{}.{}", key, member), fmt::format("'{}.{}' is missing", key, member));
  if (!value->is_object()) return json::wrong_type(fmt::format("{}.{}", key, member), "an object", *value);
  return Described{std::move(member), value};
}

/// The `name` of a function or a custom tool.
Result<std::string> name_of(const Described& tool, const std::string& key) {
  const std::string field = fmt::format("{}.{}.name", key, tool.member);
  const Value* name = find_given(*tool.value, "name");
  if (name == nullptr) return bad(field, fmt::format("'{}' is missing", field));
  return json::convert<std::string>(*name, field);
}

/// A tool, whose definition becomes that of a function.
Result<Tool> parse_tool(Value& definition, const std::string& key, std::set<std::string>& custom) {
  BATON_TRY(const Described given, described(definition, key));
  Tool tool;
  BATON_TRY(tool.name, name_of(given, key));
  if (!is_tool_name(tool.name))
    return bad(fmt::format("{}.{}.name", key, given.member),
               fmt::format("'{}.{}.name' must have 1 to {} letters, digits, '_', '-' and '.', not \"{}\"", key, given.member,
                           kMaxToolNameBytes, tool.name.substr(0, kMaxToolNameBytes)));
  if (given.member == "custom") {
    BATON_TRY(Value function, custom_function(*given.value, key + ".custom"));
    definition = Value::object();
    definition["type"] = "function";
    definition["function"] = std::move(function);
    custom.insert(tool.name);
  }
  const Value& function = definition["function"];
  if (const Value* parameters = find_given(function, "parameters")) {
    if (!parameters->is_object()) return json::wrong_type(key + ".function.parameters", "an object", *parameters);
    tool.parameters = *parameters;
    tool.field = given.member == "custom" ? key + ".custom.format" : key + ".function.parameters";
  }
  if (const Value* strict = find_given(function, "strict")) {
    BATON_TRY(tool.is_strict, json::convert<bool>(*strict, key + ".function.strict"));
  }
  return tool;
}

/// Names of tools, which the request outlives.
using ToolNames = std::set<std::string_view>;

/// A tool with its type in front. Adding members one by one, the library looks each of them up among the others.
Value with_type(const Value& tool) {
  Value typed = Value::object();
  Value::object_t::Container& members = typed.get_ref<Value::object_t&>();
  members.reserve(tool.size() + 1);
  members.emplace_back("type", "function");
  for (const auto& [name, value] : tool.get_ref<const Value::object_t&>())
    if (name != "type") members.emplace_back(name, value);
  return typed;
}

Result<void> parse_tools(const Value& given, ToolFields& fields) {
  if (!given.is_array()) return json::wrong_type("tools", "a list of tools", given);
  if (given.empty()) return {};
  if (given.size() > kMaxTools)
    return bad("tools", fmt::format("'tools' has {} tools; this server accepts {}", given.size(), kMaxTools));
  const std::size_t n_bytes = json::dump(given).size();
  if (n_bytes > kMaxToolBytes)
    return bad("tools", fmt::format("'tools' has {} bytes of JSON; this server accepts {}", n_bytes, kMaxToolBytes));
  std::vector<Tool> tools;
  ToolNames names;
  tools.reserve(given.size());  // names are of its strings
  fields.definitions = given;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string key = fmt::format("tools[{}]", i);
    BATON_TRY(Tool tool, parse_tool(fields.definitions[i], key, fields.custom));
    tools.push_back(std::move(tool));
    if (!names.insert(tools.back().name).second)
      return bad(key + ".function.name", fmt::format("'tools' has two functions called \"{}\"", tools.back().name));
    // Templates tell kinds of tools apart by the type, which is optional in a request.
    if (find_given(fields.definitions[i], "type") == nullptr) fields.definitions[i] = with_type(given[i]);
  }
  fields.tools = std::make_shared<const std::vector<Tool>>(std::move(tools));
  fields.choice.kind = ToolChoice::Kind::automatic;
  return {};
}

tl::unexpected<Error> no_tool(std::string_view name, std::string_view key) {
  return bad(key, fmt::format("'{}' names \"{}\", which is none of 'tools'", key, name.substr(0, kMaxToolNameBytes)));
}

/// "auto" or "required": the kind of a choice that needs no name.
std::optional<ToolChoice::Kind> kind_of(std::string_view word) {
  if (word == "none") return ToolChoice::Kind::none;
  if (word == "auto") return ToolChoice::Kind::automatic;
  if (word == "required") return ToolChoice::Kind::required;
  return std::nullopt;
}

/// {"type": "allowed_tools", "allowed_tools": {"mode": ..., "tools": [...]}}
Result<void> parse_allowed(const Value& choice, ToolFields& fields) {
  constexpr std::string_view kKey = "tool_choice.allowed_tools";
  const Value* allowed = find_given(choice, "allowed_tools");
  if (allowed == nullptr) return bad(kKey, fmt::format("'{}' is missing", kKey));
  if (!allowed->is_object()) return json::wrong_type(kKey, "an object", *allowed);
  const Value* mode = find_given(*allowed, "mode");
  const auto kind = mode != nullptr && mode->is_string() ? kind_of(mode->get_ref<const std::string&>()) : std::nullopt;
  if (!kind || *kind == ToolChoice::Kind::none)
    return bad("tool_choice.allowed_tools.mode", "'tool_choice.allowed_tools.mode' must be \"auto\" or \"required\"");
  fields.choice.kind = *kind;
  const Value* tools = find_given(*allowed, "tools");
  if (tools == nullptr || !tools->is_array() || tools->empty())
    return bad("tool_choice.allowed_tools.tools", "'tool_choice.allowed_tools.tools' must be a list of at least one tool");
  if (tools->size() > kMaxTools)
    return bad("tool_choice.allowed_tools.tools",
               fmt::format("'tool_choice.allowed_tools.tools' has {} tools; this server accepts {}", tools->size(), kMaxTools));
  ToolNames names;
  for (const Tool& tool : *fields.tools) names.insert(tool.name);
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const std::string key = fmt::format("tool_choice.allowed_tools.tools[{}]", i);
    BATON_TRY(const Described named, described((*tools)[i], key));
    BATON_TRY(std::string name, name_of(named, key));
    if (!names.contains(name)) return no_tool(name, key);
    fields.allowed.insert(std::move(name));
  }
  return {};
}

Result<void> parse_choice(const Value& given, ToolFields& fields) {
  if (!given.is_string() && !given.is_object()) return json::wrong_type("tool_choice", kToolChoices, given);
  if (given.is_string()) {
    const auto kind = kind_of(given.get_ref<const std::string&>());
    if (!kind)
      return bad("tool_choice", fmt::format("'tool_choice' must be {}, not \"{}\"", kToolChoices,
                                            given.get_ref<const std::string&>().substr(0, 40)));
    if (!fields.tools && *kind == ToolChoice::Kind::required)
      return bad("tool_choice", "'tool_choice' is \"required\", and there are no 'tools'");
    if (fields.tools) fields.choice.kind = *kind;
    return {};
  }
  if (!fields.tools) return bad("tool_choice", "'tool_choice' demands a tool, and there are no 'tools'");
  if (const Value* type = find_given(given, "type"); type != nullptr && json::is_text(*type, "allowed_tools"))
    return parse_allowed(given, fields);
  BATON_TRY(const Described named, described(given, "tool_choice"));
  BATON_TRY(fields.choice.name, name_of(named, "tool_choice"));
  const bool is_tool = std::ranges::find(*fields.tools, fields.choice.name, &Tool::name) != fields.tools->end();
  if (!is_tool) return no_tool(fields.choice.name, fmt::format("tool_choice.{}.name", named.member));
  fields.choice.kind = ToolChoice::Kind::named;
  return {};
}

}  // namespace

Result<ToolFields> parse_tool_fields(const Value& body) {
  ToolFields fields;
  if (const Value* tools = find_given(body, "tools")) BATON_TRY_VOID(parse_tools(*tools, fields));
  if (const Value* choice = find_given(body, "tool_choice")) BATON_TRY_VOID(parse_choice(*choice, fields));
  BATON_TRY(fields.is_parallel, openai::flag_field(body, "parallel_tool_calls", true));
  return fields;
}

Result<void> refuse_tool_fields(const Value& body, std::string_view conversations_at) {
  const std::string advice = conversations_at.empty() ? "" : fmt::format(": use {}", conversations_at);
  const Value* tools = find_given(body, "tools");
  if (tools != nullptr && !(tools->is_array() && tools->empty())) return bad("tools", "'tools' needs a conversation" + advice);
  const Value* choice = find_given(body, "tool_choice");
  if (choice != nullptr && !json::is_text(*choice, "none") && !json::is_text(*choice, "auto"))
    return bad("tool_choice", "'tool_choice' needs a conversation with 'tools'" + advice);
  return {};
}

}  // namespace baton
