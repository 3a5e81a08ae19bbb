/// Tools, one by one, and the forms of the choice.
#include "server/request/tool_fields.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/utf8.h"
#include "grammar/ebnf/regular_grammar.h"
#include "server/request/json_fields.h"

namespace baton {
namespace {

using json::Value;
using parsers::Tool;
using parsers::ToolChoice;

constexpr std::string_view kToolChoices =
    "\"none\", \"auto\", \"required\", {\"type\": \"function\", \"function\": {\"name\": ...}}, {\"type\": \"custom\", "
    "\"custom\": {\"name\": ...}} or {\"type\": \"allowed_tools\", ...}";

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxToolNameBytes && ascii::consists_of(name, "_-.");
}

/// The `type` of a tool or a choice, "function" or "custom": the name of the member that describes it.
Result<std::string> type_of(const Value& object, const std::string& key) {
  const Value* type = find_given(object, "type");
  if (type == nullptr) return std::string("function");
  if (!type->is_string()) return json::wrong_type(key + ".type", "a string", *type);
  const auto& word = type->get_ref<const std::string&>();
  if (word == "function" || word == "custom") return word;
  return bad_field(key + ".type", "is \"{}\"; this server supports tools of the types \"function\" and \"custom\"",
                   word.substr(0, 40));
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
  if (value == nullptr) return bad_field(fmt::format("{}.{}", key, member), "is missing");
  if (!value->is_object()) return json::wrong_type(fmt::format("{}.{}", key, member), "an object", *value);
  return Described{std::move(member), value};
}

/// The `name` of a function or a custom tool.
Result<std::string> name_of(const Described& tool, const std::string& key) {
  const std::string field = fmt::format("{}.{}.name", key, tool.member);
  const Value* name = find_given(*tool.value, "name");
  if (name == nullptr) return bad_field(field, "is missing");
  return json::convert<std::string>(*name, field);
}

/// A tool, whose definition becomes that of a function.
Result<Tool> parse_tool(Value& definition, const std::string& key, std::set<std::string>& custom) {
  BATON_TRY(const Described given, described(definition, key));
  Tool tool;
  BATON_TRY(tool.name, name_of(given, key));
  if (!is_tool_name(tool.name))
    return bad_field(fmt::format("{}.{}.name", key, given.member),
                     "must have 1 to {} letters, digits, '_', '-' and '.', not \"{}\"", kMaxToolNameBytes,
                     tool.name.substr(0, kMaxToolNameBytes));
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
  if (given.size() > kMaxTools) return bad_field("tools", "has {} tools; this server accepts {}", given.size(), kMaxTools);
  const std::size_t n_bytes = json::dump(given).size();
  if (n_bytes > kMaxToolBytes)
    return bad_field("tools", "has {} bytes of JSON; this server accepts {}", n_bytes, kMaxToolBytes);
  std::vector<Tool> tools;
  ToolNames names;
  tools.reserve(given.size());  // names are of its strings
  fields.definitions = given;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string key = fmt::format("tools[{}]", i);
    BATON_TRY(Tool tool, parse_tool(fields.definitions[i], key, fields.custom));
    tools.push_back(std::move(tool));
    if (!names.insert(tools.back().name).second)
      return bad(key + ".function.name", "'tools' has two functions called \"{}\"", tools.back().name);
    // Templates tell kinds of tools apart by the type, which is optional in a request.
    if (find_given(fields.definitions[i], "type") == nullptr) fields.definitions[i] = with_type(given[i]);
  }
  fields.tools = std::make_shared<const std::vector<Tool>>(std::move(tools));
  fields.choice.kind = ToolChoice::Kind::automatic;
  return {};
}

tl::unexpected<Error> no_tool(std::string_view name, std::string_view key) {
  return bad_field(key, "names \"{}\", which is none of 'tools'", name.substr(0, kMaxToolNameBytes));
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
  if (allowed == nullptr) return bad_field(kKey, "is missing");
  if (!allowed->is_object()) return json::wrong_type(kKey, "an object", *allowed);
  const Value* mode = find_given(*allowed, "mode");
  const auto kind = mode != nullptr && mode->is_string() ? kind_of(mode->get_ref<const std::string&>()) : std::nullopt;
  if (!kind || *kind == ToolChoice::Kind::none)
    return bad_field("tool_choice.allowed_tools.mode", "must be \"auto\" or \"required\"");
  fields.choice.kind = *kind;
  const Value* tools = find_given(*allowed, "tools");
  if (tools == nullptr || !tools->is_array() || tools->empty())
    return bad_field("tool_choice.allowed_tools.tools", "must be a list of at least one tool");
  if (tools->size() > kMaxTools)
    return bad_field("tool_choice.allowed_tools.tools", "has {} tools; this server accepts {}", tools->size(), kMaxTools);
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
      return bad_field("tool_choice", "must be {}, not \"{}\"", kToolChoices,
                       given.get_ref<const std::string&>().substr(0, 40));
    if (!fields.tools && *kind == ToolChoice::Kind::required)
      return bad_field("tool_choice", "is \"required\", and there are no 'tools'");
    if (fields.tools) fields.choice.kind = *kind;
    return {};
  }
  if (!fields.tools) return bad_field("tool_choice", "demands a tool, and there are no 'tools'");
  if (const Value* type = find_given(given, "type"); type != nullptr && json::is_text(*type, "allowed_tools"))
    return parse_allowed(given, fields);
  BATON_TRY(const Described named, described(given, "tool_choice"));
  BATON_TRY(fields.choice.name, name_of(named, "tool_choice"));
  const bool is_tool = std::ranges::find(*fields.tools, fields.choice.name, &Tool::name) != fields.tools->end();
  if (!is_tool) return no_tool(fields.choice.name, fmt::format("tool_choice.{}.name", named.member));
  fields.choice.kind = ToolChoice::Kind::named;
  return {};
}

constexpr std::string_view kSpaces = " \t\r\n";

/// Whether `front` is `{"input": "`, and the text begins after it; nullopt: it may become that.
std::optional<bool> begins_text(std::string_view front) {
  constexpr std::size_t kMaxFront = 64;
  if (front.size() > kMaxFront) return false;
  for (const std::string_view piece : {"{", "\"input\"", ":", "\""}) {
    front.remove_prefix(std::min(front.find_first_not_of(kSpaces), front.size()));
    if (front.size() < piece.size()) return piece.starts_with(front) ? std::nullopt : std::optional(false);
    if (!front.starts_with(piece)) return false;
    front.remove_prefix(piece.size());
  }
  return true;
}

}  // namespace

Result<Value> custom_function(const Value& tool, const std::string& key) {
  Value function;
  BATON_TRY(function["name"], string_member(tool, "name", key));
  BATON_TRY(const auto given, json::get_optional<std::string>(tool, "description"));
  std::string description = given.value_or("");
  Value input;
  input["type"] = "string";
  if (const Value* format = find_given(tool, "format")) {
    const std::string name = key + ".format";
    if (!format->is_object()) return json::wrong_type(name, "an object", *format);
    BATON_TRY(const std::string type, string_member(*format, "type", name));
    if (type != "text" && type != "grammar")
      return bad_field(name + ".type", "must be \"text\" or \"grammar\", not \"{}\"", type.substr(0, 40));
    if (type == "grammar") {
      // Chat completions have it one level deeper than responses.
      const Value* inner = find_given(*format, "grammar");
      const Value& grammar = inner == nullptr ? *format : *inner;
      BATON_TRY(const std::string syntax, string_member(grammar, "syntax", name));
      BATON_TRY(const std::string definition, string_member(grammar, "definition", name));
      if (syntax != "regex" && syntax != "lark")
        return bad_field(name + ".syntax", "must be \"lark\" or \"regex\", not \"{}\"", syntax.substr(0, 40));
      if (syntax == "regex") {
        input["pattern"] = "^(?:" + definition + ")$";
        function["strict"] = true;
      } else {
        if (!description.empty()) description += "\n\n";
        description += "The input must keep to this grammar in Lark's notation:\n" + definition;
        auto is_regular = grammar::is_regular_grammar(definition);
        if (!is_regular) return bad(name + ".definition", "'{}.definition': {}", name, is_regular.error().message);
        if (*is_regular) {
          input[std::string(grammar::kGrammarKeyword)] = definition;
          function["strict"] = true;
        }
      }
    }
  }
  if (!description.empty()) function["description"] = std::move(description);
  Value& parameters = function["parameters"];
  parameters["type"] = "object";
  parameters["properties"]["input"] = std::move(input);
  parameters["required"] = Value::array({"input"});
  parameters["additionalProperties"] = false;
  return function;
}

std::string custom_arguments(const Value& input) {
  Value arguments;
  arguments["input"] = input.is_string() ? input : Value(json::dump(input));
  return json::dump(arguments);
}

std::string CustomInput::take(std::string_view arguments) {
  std::string out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const char c = arguments[i];
    switch (state_) {
      case State::front: {
        front_ += c;
        const auto begins = begins_text(front_);
        if (!begins) break;
        if (*begins) {
          front_.clear();
          state_ = State::text;
        } else {  // none of ours: it is kept to the end
          front_ += arguments.substr(i + 1);
          return out;
        }
        break;
      }
      case State::text:
        if (c != '\\') end_half(out);
        if (c == '\\')
          state_ = State::escape;
        else if (c == '"')
          state_ = State::behind;
        else
          out += c;
        break;
      case State::escape: take_escaped(c, out); break;
      case State::digits: take_digit(c, out); break;
      case State::behind: return out;
    }
  }
  return out;
}

void CustomInput::take_escaped(char c, std::string& out) {
  state_ = State::text;
  if (c != 'u') end_half(out);
  switch (c) {
    case 'n': out += '\n'; break;
    case 't': out += '\t'; break;
    case 'r': out += '\r'; break;
    case 'b': out += '\b'; break;
    case 'f': out += '\f'; break;
    case 'u':
      state_ = State::digits;
      code_ = 0;
      n_digits_ = 0;
      break;
    default: out += c;
  }
}

void CustomInput::take_digit(char c, std::string& out) {
  code_ = code_ * 16 + static_cast<std::uint32_t>(std::max(0, ascii::hex_digit(c)));
  if (++n_digits_ < 4) return;
  state_ = State::text;
  const bool is_high = code_ >= 0xD800 && code_ < 0xDC00, is_low = code_ >= 0xDC00 && code_ < 0xE000;
  if (is_low && high_ != 0) {
    unicode::append_utf8(out, 0x10000 + ((std::exchange(high_, 0) - 0xD800) << 10) + (code_ - 0xDC00));
    return;
  }
  end_half(out);
  if (is_high)
    high_ = code_;
  else if (is_low)
    out += unicode::kReplacementUtf8;
  else
    unicode::append_utf8(out, code_);
}

void CustomInput::end_half(std::string& out) {
  if (std::exchange(high_, 0) != 0) out += unicode::kReplacementUtf8;
}

std::string CustomInput::end() {
  std::string rest = std::exchange(front_, {});
  end_half(rest);
  return rest;
}

Result<ToolFields> parse_tool_fields(const Value& body) {
  ToolFields fields;
  if (const Value* tools = find_given(body, "tools")) BATON_TRY_VOID(parse_tools(*tools, fields));
  if (const Value* choice = find_given(body, "tool_choice")) BATON_TRY_VOID(parse_choice(*choice, fields));
  BATON_TRY(fields.is_parallel, flag_field(body, "parallel_tool_calls", true));
  return fields;
}

Result<void> refuse_tool_fields(const Value& body, std::string_view conversations_at) {
  const std::string advice = conversations_at.empty() ? "" : fmt::format(": use {}", conversations_at);
  const Value* tools = find_given(body, "tools");
  if (tools != nullptr && !(tools->is_array() && tools->empty())) return bad_field("tools", "needs a conversation{}", advice);
  const Value* choice = find_given(body, "tool_choice");
  if (choice != nullptr && !json::is_text(*choice, "none") && !json::is_text(*choice, "auto"))
    return bad_field("tool_choice", "needs a conversation with 'tools'{}", advice);
  return {};
}

}  // namespace baton
