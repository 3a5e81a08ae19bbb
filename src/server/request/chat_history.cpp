/// One message after another, one function for each of its fields.
#include "server/request/chat_history.h"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "server/request/json_fields.h"
#include "server/request/tool_fields.h"

namespace baton {
namespace {

using json::Value;

/// What the messages before one have said.
struct Earlier {
  std::map<std::string, std::string, std::less<>> names;  // of calls, by id
  std::string last_id;                                    // of a function_call that has no result yet
};

/// What a part is that is no text, in a word for people.
std::string_view kind_of_part(std::string_view type) {
  if (type.find("image") != std::string_view::npos) return "image";
  if (type.find("audio") != std::string_view::npos) return "audio";
  if (type.find("video") != std::string_view::npos) return "video";
  if (type.find("file") != std::string_view::npos || type == "document") return "file";
  return {};
}

Value text_part(std::string text) {
  Value part;
  part["type"] = "text";
  part["text"] = std::move(text);
  return part;
}

/// Where a part stands.
enum class PartOf : std::uint8_t {
  input,    ///< what the user says last: it must be understood
  history,  ///< what was said before, and results
  answer,   ///< what a model has said
};

/// A part of a content as a text: its own, that of a refusal, or what stands for it. nullopt: it says nothing.
Result<std::optional<std::string>> parse_part(const Value& part, const std::string& key, PartOf place) {
  using Text = std::optional<std::string>;
  if (part.is_string()) return Text(part);
  if (!part.is_object()) return json::wrong_type(key, "an object", part);
  auto type = json::get<std::string>(part, "type");
  if (!type) return bad_field(key + ".type", "must be \"text\"");
  const bool is_text = *type == "text" || *type == "input_text" || *type == "output_text";
  if (is_text || *type == "refusal") {
    const std::string_view member = is_text ? std::string_view("text") : *type;
    auto text = json::get<std::string>(part, member);
    if (!text) return bad_field(fmt::format("{}.{}", key, member), "must be a string");
    return Text(std::move(*text));
  }
  if (place == PartOf::answer) return Text();
  const std::string_view kind = kind_of_part(*type);
  if (place == PartOf::history && !kind.empty()) return Text(omitted_text(kind));
  return bad_field(key + ".type", "is \"{}\"; this model reads \"text\" only", type->substr(0, 40));
}

/// The content of a message: a string, null, or a list of texts.
Result<Value> parse_message_content(const Value& content, const std::string& key, PartOf place) {
  if (content.is_string() || content.is_null()) return content;
  if (!content.is_array()) return json::wrong_type(key, "a string or a list of parts", content);
  Value parts = Value::array();
  for (std::size_t i = 0; i < content.size(); ++i) {
    BATON_TRY(std::optional<std::string> text, parse_part(content[i], fmt::format("{}[{}]", key, i), place));
    if (text) parts.push_back(text_part(std::move(*text)));
  }
  return parts.empty() ? Value("") : parts;
}

/// A call as templates read it: {"id"?, "type", "function": {"name", "arguments"}}.
Result<Value> parse_call(const Value& given, const std::string& key) {
  if (!given.is_object()) return json::wrong_type(key, "an object", given);
  Value call = given;
  const Value* type = find_given(given, "type");
  const bool is_custom = type != nullptr && json::is_text(*type, "custom");
  if (type != nullptr && !is_custom && !json::is_text(*type, "function"))
    return bad_field(key + ".type", "must be \"function\" or \"custom\"");
  call["type"] = "function";
  if (const Value* id = find_given(given, "id"); id != nullptr && !id->is_string())
    return json::wrong_type(key + ".id", "a string", *id);
  const std::string member = is_custom ? "custom" : "function";
  const Value* function = find_given(given, member);
  if (function == nullptr || !function->is_object())
    return bad_field(fmt::format("{}.{}", key, member), "must be an object with 'name' and '{}'",
                     is_custom ? "input" : "arguments");
  const Value* name = find_given(*function, "name");
  if (name == nullptr || !name->is_string()) return bad_field(fmt::format("{}.{}.name", key, member), "must be a string");
  if (is_custom) {
    call.erase(member);
    call["function"]["name"] = *name;
  }
  const Value* arguments = find_given(*function, is_custom ? "input" : "arguments");
  Value& taken = call["function"]["arguments"];
  if (is_custom)
    taken = custom_arguments(arguments == nullptr ? Value("") : *arguments);
  else if (arguments == nullptr)
    taken = "{}";
  else if (!arguments->is_string() && !arguments->is_object())  // what a model has written is taken
    taken = json::dump(*arguments);
  return call;
}

Result<void> parse_calls(Value& message, const std::string& name, Earlier& earlier) {
  const Value given = message["tool_calls"];
  if (!given.is_null() && !given.is_array()) return json::wrong_type(name + ".tool_calls", "a list of calls", given);
  if (given.empty()) {  // or null; templates look whether the key is there
    message.erase("tool_calls");
    return {};
  }
  if (given.size() > kMaxCallsOfMessage)
    return bad_field(name + ".tool_calls", "has {} calls; this server accepts {}", given.size(), kMaxCallsOfMessage);
  Value calls = Value::array();
  for (std::size_t i = 0; i < given.size(); ++i) {
    BATON_TRY(Value call, parse_call(given[i], fmt::format("{}.tool_calls[{}]", name, i)));
    if (const Value* id = find_given(call, "id"))
      earlier.names.insert_or_assign(id->get<std::string>(), call["function"]["name"].get<std::string>());
    calls.push_back(std::move(call));
  }
  message["tool_calls"] = std::move(calls);
  return {};
}

/// A deprecated `function_call` becomes a call with an id by the place of its message.
void replace_function_call(Value& message, std::size_t index, Earlier& earlier) {
  const Value* call = json::find(message, "function_call");
  if (call == nullptr) return;
  if (!call->is_null() && !message.contains("tool_calls")) {
    earlier.last_id = fmt::format("call{:05}", index % 100000);
    message["tool_calls"] = Value::array({Value{{"id", earlier.last_id}, {"type", "function"}, {"function", *call}}});
  }
  message.erase("function_call");
}

/// The fields of an assistant's message besides its calls.
Result<void> parse_assistant(Value& message, const std::string& name) {
  if (const Value* audio = json::find(message, "audio")) {
    if (!audio->is_null() && find_given(message, "content") == nullptr) message["content"] = omitted_text("audio");
    message.erase("audio");
  }
  if (const Value* refusal = json::find(message, "refusal")) {
    if (!refusal->is_null() && !refusal->is_string()) return json::wrong_type(name + ".refusal", "a string", *refusal);
    if (refusal->is_string() && find_given(message, "content") == nullptr) message["content"] = Value(*refusal);
    message.erase("refusal");
  }
  Value reasoning;
  for (const std::string_view field : {"thinking", "reasoning", "reasoning_content"}) {
    const Value* given = json::find(message, field);
    if (given == nullptr) continue;
    if (!given->is_null() && !given->is_string())
      return json::wrong_type(fmt::format("{}.{}", name, field), "a string", *given);
    if (given->is_string()) reasoning = *given;
    message.erase(std::string(field));
  }
  if (reasoning.is_null()) return {};
  message["reasoning"] = reasoning;
  message["reasoning_content"] = reasoning;
  message["thinking"] = std::move(reasoning);
  return {};
}

/// A result gets the id and the name of its call. Some templates write the name.
Result<void> parse_result(Value& message, const std::string& name, Earlier& earlier) {
  if (const Value* id = find_given(message, "tool_call_id"); id != nullptr && !id->is_string())
    return json::wrong_type(name + ".tool_call_id", "a string", *id);
  if (json::is_text(message["role"], "function")) {
    message["role"] = "tool";
    if (!earlier.last_id.empty() && !message.contains("tool_call_id"))
      message["tool_call_id"] = std::exchange(earlier.last_id, {});
  }
  const Value* id = find_given(message, "tool_call_id");
  if (id == nullptr || find_given(message, "name") != nullptr) return {};
  const auto call = earlier.names.find(id->get_ref<const std::string&>());
  if (call != earlier.names.end()) message["name"] = call->second;
  return {};
}

Result<Value> parse_message(const Value& given, std::size_t index, bool is_last, const std::string& name, Earlier& earlier) {
  if (!given.is_object()) return json::wrong_type(name, "an object", given);
  Value message = given;
  const Value* role = json::find(message, "role");
  if (role == nullptr) return bad_field(name + ".role", "is missing");
  if (!role->is_string()) return json::wrong_type(name + ".role", "a string", *role);
  const bool is_assistant = json::is_text(*role, "assistant");
  const bool is_result = json::is_text(*role, "tool") || json::is_text(*role, "function");
  const bool has_calls_field = message.contains("tool_calls") || message.contains("function_call");
  if (is_assistant) {
    BATON_TRY_VOID(parse_assistant(message, name));
    replace_function_call(message, index, earlier);
    if (message.contains("tool_calls")) BATON_TRY_VOID(parse_calls(message, name, earlier));
  }
  if (is_result) BATON_TRY_VOID(parse_result(message, name, earlier));
  const Value* content = json::find(message, "content");
  if (content == nullptr && !(is_assistant && has_calls_field)) return bad_field(name + ".content", "is missing");
  if (content != nullptr) {  // templates tell one that is absent from null
    const PartOf place = is_assistant ? PartOf::answer : is_last && !is_result ? PartOf::input : PartOf::history;
    BATON_TRY(Value parts, parse_message_content(*content, name + ".content", place));
    message["content"] = std::move(parts);
  }
  if (content == nullptr) {
    if (!message.contains("tool_calls")) message["content"] = "";  // an empty list of calls
    return message;
  }
  if (is_result && message["content"].is_null()) message["content"] = "";
  if (!is_assistant && message["content"].is_null())
    return json::wrong_type(name + ".content", "a string or a list of parts", message["content"]);
  return message;
}

}  // namespace

std::string omitted_text(std::string_view what) { return fmt::format("[{} omitted: this model reads text only]", what); }

Result<Value> parse_messages(const Value& value, std::string_view key) {
  if (!value.is_array()) return json::wrong_type(key, "a list of messages", value);
  if (value.empty()) return bad_field(key, "must hold at least one message");
  Value messages = Value::array();
  Earlier earlier;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const bool is_last = i + 1 == value.size();
    BATON_TRY(Value message, parse_message(value[i], i, is_last, fmt::format("{}[{}]", key, i), earlier));
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace baton
