/// Schemas of typed tools, and choices.
#include "server/dialects/messages/tools.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "server/request/json_fields.h"

namespace baton {
namespace {

using json::Value;
using openai::bad;
using openai::find_given;
using openai::string_member;

/// Types that stand for a schema, by how they begin: a date follows.
struct SchemaTool {
  std::string_view begin;
  std::string_view description;
  std::string_view schema;  ///< JSON text
};
constexpr SchemaTool kSchemaTools[] = {
    {"bash_", "Runs a command in a shell that stays open, and returns its output.",
     R"({"type":"object","properties":{"command":{"type":"string","description":"The command to run. Needed unless the shell is restarted."},"restart":{"type":"boolean","description":"Restarts the shell."}}})"},
    {"text_editor_", "Views, creates and changes text files.",
     R"({"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert","undo_edit"]},"path":{"type":"string","description":"An absolute path."},"file_text":{"type":"string","description":"Of create: the text of the file."},"view_range":{"type":"array","items":{"type":"integer"},"description":"Of view: the first and the last line."},"old_str":{"type":"string","description":"Of str_replace: the text to replace, which the file has once."},"new_str":{"type":"string","description":"Of str_replace and insert: the new text."},"insert_line":{"type":"integer","description":"Of insert: the line behind which the text goes."},"insert_text":{"type":"string","description":"Of insert: the new text."}},"required":["command","path"]})"},
    {"memory_", "Keeps notes in files below /memories, which outlive the conversation.",
     R"({"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert","delete","rename"]},"path":{"type":"string"},"view_range":{"type":"array","items":{"type":"integer"}},"file_text":{"type":"string"},"old_str":{"type":"string"},"new_str":{"type":"string"},"insert_line":{"type":"integer"},"insert_text":{"type":"string"},"old_path":{"type":"string"},"new_path":{"type":"string"}},"required":["command"]})"},
};

/// A tool as the `function` of a chat completion's; null: only a hosted server runs it.
Result<Value> read_tool(const Value& tool, const std::string& key) {
  if (!tool.is_object()) return json::wrong_type(key, "an object", tool);
  Value function;
  const Value* type = find_given(tool, "type");
  if (type == nullptr || json::is_text(*type, "custom")) {
    BATON_TRY(function["name"], string_member(tool, "name", key));
    if (const Value* description = find_given(tool, "description")) function["description"] = *description;
    const Value* schema = find_given(tool, "input_schema");
    if (schema == nullptr || !schema->is_object())
      return bad(key + ".input_schema", fmt::format("'{}.input_schema' must be a JSON schema, an object", key));
    function["parameters"] = *schema;
    if (const Value* strict = find_given(tool, "strict")) function["strict"] = *strict;
    return function;
  }
  if (json::is_text(*type, "function"))
    return bad(key,
               fmt::format("'{}' is a tool as OpenAI's API has them; this one takes name, description and input_schema", key));
  BATON_TRY(const std::string name, block_type(tool, key));
  const auto typed = std::ranges::find_if(kSchemaTools, [&](const SchemaTool& one) { return name.starts_with(one.begin); });
  if (typed == std::end(kSchemaTools)) return Value();
  BATON_TRY(function["name"], string_member(tool, "name", key));
  function["description"] = std::string(typed->description);
  BATON_TRY(function["parameters"], json::parse(typed->schema, "a schema"));
  return function;
}

}  // namespace

Result<void> read_message_tools(const Value& body, MessagesReading& reading) {
  const Value* given = find_given(body, "tools");
  if (given == nullptr) return {};
  if (!given->is_array()) return json::wrong_type("tools", "a list of tools", *given);
  Value tools = Value::array();
  for (std::size_t i = 0; i < given->size(); ++i) {
    const std::string key = fmt::format("tools[{}]", i);
    BATON_TRY(Value function, read_tool((*given)[i], key));
    BATON_TRY_VOID(read_mark((*given)[i], key, {CacheMark::Part::tools, i}, reading.request.marks));
    if (function.is_null()) {
      reading.request.unknown_fields.push_back(fmt::format("tool {}", json::dump((*given)[i]["type"]).substr(0, 40)));
      continue;
    }
    Value& tool = tools.emplace_back();
    tool["type"] = "function";
    tool["function"] = std::move(function);
    reading.request.tool_keys.push_back(key);
  }
  if (!tools.empty()) reading.request.chat["tools"] = std::move(tools);
  return {};
}

Result<void> read_message_choice(const Value& body, Value& chat) {
  const std::string key = "tool_choice";
  const Value* choice = find_given(body, key);
  if (choice == nullptr) return {};
  BATON_TRY(const std::string type, block_type(*choice, key));
  if (type == "auto" || type == "none") {
    chat[key] = type;
  } else if (type == "any") {
    chat[key] = "required";
  } else if (type == "tool") {
    Value named;
    named["type"] = "function";
    BATON_TRY(named["function"]["name"], string_member(*choice, "name", key));
    chat[key] = std::move(named);
  } else {
    return bad("tool_choice.type", fmt::format("'tool_choice.type' must be \"auto\", \"any\", \"tool\" or \"none\", not \"{}\"",
                                               type.substr(0, 40)));
  }
  BATON_TRY(const bool is_serial, openai::flag_field(*choice, "disable_parallel_tool_use", false));
  if (is_serial) chat["parallel_tool_calls"] = false;
  return {};
}

}  // namespace baton
