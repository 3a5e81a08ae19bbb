/// Kinds of items, one function for each.
#include "server/dialects/responses/items.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "server/dialects/fields.h"
#include "server/dialects/responses/tools.h"
#include "server/request/chat_history.h"
#include "server/request/json_fields.h"
#include "server/request/stamp.h"
#include "server/request/tool_fields.h"

namespace baton {
namespace {

using json::Value;

/// Where a content stands.
enum class ContentOf : std::uint8_t {
  input,    ///< what the user says last: it must be understood
  history,  ///< what was said before, and results
  answer,   ///< what a model has said
};

bool is_text_part(std::string_view type) {
  return type == "input_text" || type == "output_text" || type == "text" || type == "summary_text" || type == "reasoning_text";
}

/// The texts of a content: a string, or a list of parts.
Result<std::vector<std::string>> texts_of(const Value& content, const std::string& key, ContentOf place) {
  std::vector<std::string> texts;
  if (content.is_string()) {
    texts.push_back(content);
    return texts;
  }
  if (!content.is_array()) return json::wrong_type(key, "a string or a list of parts", content);
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string part_key = fmt::format("{}[{}]", key, i);
    const Value& part = content[i];
    if (!part.is_object()) return json::wrong_type(part_key, "an object", part);
    BATON_TRY(const std::string type, string_member(part, "type", part_key));
    if (is_text_part(type) || type == "refusal") {
      BATON_TRY(std::string text, string_member(part, is_text_part(type) ? "text" : "refusal", part_key));
      texts.push_back(std::move(text));
      continue;
    }
    if (place == ContentOf::answer) continue;
    const std::string_view kind = type.find("image") != std::string::npos || type.find("screenshot") != std::string::npos
                                      ? "image"
                                  : type.find("audio") != std::string::npos ? "audio"
                                  : type.find("file") != std::string::npos  ? "file"
                                                                            : "";
    if (place == ContentOf::input || kind.empty())
      return bad_field(part_key + ".type", "is \"{}\"; this model reads text only (\"input_text\" and \"output_text\")",
                       type.substr(0, 40));
    texts.push_back(omitted_text(kind));
  }
  if (texts.empty()) texts.emplace_back();
  return texts;
}

/// Types of items that say nothing to this model: of tools that a hosted server has run, and what is encrypted for one.
constexpr std::string_view kSilentItems[] = {
    "web_search_call",    "file_search_call",     "computer_call",         "image_generation_call",
    "mcp_list_tools",     "mcp_approval_request", "mcp_approval_response", "program",
    "program_output",     "compaction",           "compaction_summary",    "compaction_trigger",
    "context_compaction", "item_reference",       "computer_call_output"};

/// Makes messages of items in their order. What the assistant says in several items is one message.
class ItemReader {
 public:
  Result<void> read(const Value& item, const std::string& key, bool is_last) {
    BATON_TRY(const std::string type, string_member(item, "type", key));
    if (type == "message") return read_message(item, key, is_last);
    if (type == "reasoning") return read_reasoning(item);
    if (type == "function_call" || type == "custom_tool_call") return read_named_call(item, key, type == "custom_tool_call");
    if (type == "function_call_output" || type == "custom_tool_call_output") return read_result(item, key);
    if (type.ends_with("_call_output") && type != "computer_call_output") return read_typed_result(item, type, key);
    if (type == "local_shell_call") return read_typed_call(item, ResponseTool::Kind::local_shell, "action");
    if (type == "shell_call") return read_typed_call(item, ResponseTool::Kind::shell, "action");
    if (type == "apply_patch_call") return read_typed_call(item, ResponseTool::Kind::apply_patch, "operation");
    if (type == "tool_search_call") return read_typed_call(item, ResponseTool::Kind::tool_search, "arguments");
    if (type == "tool_search_output" || type == "additional_tools") return read_tools(item, type, key);
    if (type == "mcp_call" || type == "code_interpreter_call") return read_hosted_call(item, type);
    if (std::ranges::find(kSilentItems, type) == std::end(kSilentItems))
      return bad_field(key + ".type", "is \"{}\"; this server knows no such item", type.substr(0, 40));
    said_.left_out.push_back(type);
    return {};
  }

  ItemMessages take() {
    flush();
    return std::move(said_);
  }

 private:
  Result<void> read_message(const Value& item, const std::string& key, bool is_last) {
    BATON_TRY(const std::string role, string_member(item, "role", key));
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      return bad_field(key + ".role", "must be \"user\", \"assistant\", \"system\" or \"developer\", not \"{}\"",
                       role.substr(0, 40));
    const bool is_answer = role == "assistant";
    const Value* content = find_given(item, "content");
    if (content == nullptr && !is_answer) return bad_field(key + ".content", "is missing");
    std::vector<std::string> texts(1);
    if (content != nullptr) {
      const ContentOf place = is_answer ? ContentOf::answer : is_last ? ContentOf::input : ContentOf::history;
      BATON_TRY(texts, texts_of(*content, key + ".content", place));
    }
    if (!is_answer) {
      flush();
      said_.messages.push_back(chat_message(role, chat_content(std::move(texts))));
      return {};
    }
    if (has_content_ || !calls_.empty()) flush();
    content_ = chat_content(std::move(texts));
    has_content_ = true;
    return {};
  }

  void add_call(std::string id, std::string_view name, std::string arguments) {
    Value call;
    call["id"] = std::move(id);
    call["type"] = "function";
    call["function"]["name"] = std::string(name);
    call["function"]["arguments"] = std::move(arguments);
    calls_.push_back(std::move(call));
  }

  void add_result(std::string id, std::vector<std::string> texts) {
    flush();
    Value message = chat_message("tool", chat_content(std::move(texts)));
    message["tool_call_id"] = std::move(id);
    said_.messages.push_back(std::move(message));
  }

  /// What the arguments are is the model's business.
  Result<void> read_named_call(const Value& item, const std::string& key, bool is_custom) {
    BATON_TRY(std::string id, string_member(item, "call_id", key));
    BATON_TRY(const std::string name, string_member(item, "name", key));
    BATON_TRY(const auto name_space, json::get_optional<std::string>(item, "namespace"));
    const Value* given = find_given(item, is_custom ? "input" : "arguments");
    const Value text = given == nullptr ? Value("") : given->is_string() ? *given : Value(json::dump(*given));
    add_call(std::move(id), shown_tool_name(name_space.value_or(""), name),
             is_custom ? custom_arguments(text) : std::string(text));
    return {};
  }

  /// The id of a call or a result whose item has its own name for it.
  static std::string call_id_of(const Value& item) {
    for (const std::string_view member : {"call_id", "id"})
      if (const Value* id = find_given(item, member); id != nullptr && id->is_string()) return *id;
    return {};
  }

  Result<void> read_typed_call(const Value& item, ResponseTool::Kind kind, std::string_view member) {
    const Value* said = find_given(item, member);
    Value arguments = said != nullptr && said->is_object() ? *said : Value::object();
    if (kind == ResponseTool::Kind::local_shell)
      for (const char* const own : {"type", "env", "user"}) arguments.erase(own);
    for (const char* const optional : {"timeout_ms", "working_directory", "max_output_length"})
      if (const Value* value = json::find(arguments, optional); value != nullptr && value->is_null()) arguments.erase(optional);
    add_call(call_id_of(item), function_of(kind), json::dump(arguments));
    return {};
  }

  Result<void> read_result(const Value& item, const std::string& key) {
    const Value* output = find_given(item, "output");
    if (output == nullptr) return bad_field(key + ".output", "is missing");
    BATON_TRY(std::vector<std::string> texts, texts_of(*output, key + ".output", ContentOf::history));
    BATON_TRY(std::string id, string_member(item, "call_id", key));
    add_result(std::move(id), std::move(texts));
    return {};
  }

  /// The output of a shell or a patch: a text, or what the item says of it.
  Result<void> read_typed_result(const Value& item, const std::string& type, const std::string& key) {
    const Value* output = find_given(item, "output");
    const Value* status = find_given(item, "status");
    if (output == nullptr && type != "apply_patch_call_output") return bad_field(key + ".output", "is missing");
    std::string text = output == nullptr ? "" : output->is_string() ? output->get<std::string>() : json::dump(*output);
    if (type == "apply_patch_call_output" && status != nullptr && status->is_string())
      text = status->get<std::string>() + (text.empty() ? "" : "\n") + text;
    add_result(call_id_of(item), {std::move(text)});
    return {};
  }

  /// Tools that the conversation brings. The model reads their names where it has asked for them.
  Result<void> read_tools(const Value& item, const std::string& type, const std::string& key) {
    const Value* tools = find_given(item, "tools");
    if (tools == nullptr || !tools->is_array()) return bad_field(key + ".tools", "must be a list of tools");
    said_.tools.push_back(*tools);
    if (type != "tool_search_output" || find_given(item, "call_id") == nullptr) return {};
    std::string names = "Found:";
    for (const Value& tool : *tools)
      if (const Value* name = find_given(tool, "name"); name != nullptr && name->is_string())
        names += " " + name->get_ref<const std::string&>();
    add_result(call_id_of(item), {std::move(names)});
    return {};
  }

  /// A call that a hosted server has run, with its result.
  Result<void> read_hosted_call(const Value& item, const std::string& type) {
    const auto text_of = [&](std::string_view member) {
      const Value* value = find_given(item, member);
      return value == nullptr ? std::string() : value->is_string() ? value->get<std::string>() : json::dump(*value);
    };
    const bool is_code = type == "code_interpreter_call";
    Value code;
    code["code"] = text_of("code");
    add_call(text_of("id"), is_code ? "code_interpreter" : text_of("name"), is_code ? json::dump(code) : text_of("arguments"));
    std::string result = is_code ? std::string() : text_of("output") + text_of("error");
    if (const Value* outputs = is_code ? find_given(item, "outputs") : nullptr; outputs != nullptr && outputs->is_array())
      for (const Value& output : *outputs)
        if (const Value* logs = find_given(output, "logs"); logs != nullptr && logs->is_string())
          result += logs->get_ref<const std::string&>();
    add_result(text_of("id"), {std::move(result)});
    return {};
  }

  /// Its text, or else its summary. What is encrypted for another server says nothing here.
  Result<void> read_reasoning(const Value& item) {
    if (has_content_ || !calls_.empty()) flush();
    for (const std::string_view member : {"content", "summary"}) {
      const Value* parts = find_given(item, member);
      if (parts == nullptr || parts->empty()) continue;
      if (const auto texts = texts_of(*parts, std::string(member), ContentOf::answer))
        for (const std::string& text : *texts) reasoning_ += text;
      break;
    }
    return {};
  }

  void flush() {
    if (!has_content_ && calls_.empty() && reasoning_.empty()) return;
    Value message;
    message["role"] = "assistant";
    if (has_content_ || calls_.empty()) message["content"] = has_content_ ? std::move(content_) : Value("");
    if (!reasoning_.empty()) message["reasoning_content"] = std::exchange(reasoning_, {});
    if (!calls_.empty()) message["tool_calls"] = std::exchange(calls_, Value::array());
    said_.messages.push_back(std::move(message));
    has_content_ = false;
  }

  ItemMessages said_;
  // Of the assistant's message that is not complete.
  Value content_;
  bool has_content_ = false;
  std::string reasoning_;
  Value calls_ = Value::array();
};

}  // namespace

std::string new_item_id(std::string_view type) {
  constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"message", "msg_"},          {"reasoning", "rs_"},  {"function_call", "fc_"},     {"custom_tool_call", "ctc_"},
      {"local_shell_call", "lsh_"}, {"shell_call", "sh_"}, {"apply_patch_call", "apc_"}, {"tool_search_call", "tsc_"}};
  const auto kind = std::ranges::find(kKinds, type, &std::pair<std::string_view, std::string_view>::first);
  return std::string(kind == std::end(kKinds) ? "item_" : kind->second) + random_id();
}

Result<Value> read_input_items(const Value& input) {
  Value items = Value::array();
  if (input.is_string()) {
    Value item;
    item["id"] = new_item_id("message");
    item["type"] = "message";
    item["role"] = "user";
    Value part;
    part["type"] = "input_text";
    part["text"] = input;
    item["content"] = Value::array({std::move(part)});
    items.push_back(std::move(item));
    return items;
  }
  if (!input.is_array()) return json::wrong_type("input", "a string or a list of items", input);
  for (std::size_t i = 0; i < input.size(); ++i) {
    if (!input[i].is_object()) return json::wrong_type(fmt::format("input[{}]", i), "an object", input[i]);
    Value item = input[i];
    const bool is_reference =
        find_given(item, "role") == nullptr && find_given(item, "content") == nullptr && find_given(item, "id") != nullptr;
    if (find_given(item, "type") == nullptr) item["type"] = is_reference ? "item_reference" : "message";
    const Value& type = item["type"];
    if (find_given(item, "id") == nullptr) item["id"] = new_item_id(type.is_string() ? std::string(type) : std::string());
    items.push_back(std::move(item));
  }
  return items;
}

Value with_referred_items(Value items, const FindItem& find) {
  std::set<std::string, std::less<>> known;
  const auto id_of = [](const Value& item) {
    const Value* id = find_given(item, "id");
    return id != nullptr && id->is_string() ? id->get<std::string>() : std::string();
  };
  const auto is_reference = [](const Value& item) { return json::is_text(item["type"], "item_reference"); };
  for (const Value& item : items)
    if (!is_reference(item)) known.insert(id_of(item));
  for (Value& item : items) {
    if (!is_reference(item) || known.contains(id_of(item))) continue;
    if (Value found = find(id_of(item)); found.is_object()) item = std::move(found);
  }
  return items;
}

Result<ItemMessages> messages_of_items(const Value& items, std::size_t n_earlier) {
  ItemReader reader;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string key =
        i < n_earlier ? fmt::format("item {} of the earlier response", i) : fmt::format("input[{}]", i - n_earlier);
    BATON_TRY_VOID(reader.read(items[i], key, i + 1 == items.size()));
  }
  return reader.take();
}

}  // namespace baton
