/// One message after another, one function for each of its fields.
#include "server/request/chat_history.h"

#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "server/request/call_id.h"
#include "server/request/json_fields.h"

namespace baton {
namespace {

using json::Value;
using openai::bad;
using openai::find_given;

/// What the messages before one have said.
struct Earlier {
  std::map<std::string, std::string, std::less<>> names;  // of calls, by id
  std::string last_id;                                    // of a function_call that has no result yet
};

/// A part of a content: a text, or the text of a refusal.
Result<std::string> parse_part(const Value& part, const std::string& key) {
  if (!part.is_object()) return json::wrong_type(key, "an object", part);
  auto type = json::get<std::string>(part, "type");
  if (!type) return bad(key + ".type", fmt::format("'{}.type' must be \"text\"", key));
  if (*type != "text" && *type != "refusal")
    return bad(key + ".type", fmt::format("'{}.type' is \"{}\"; this model reads \"text\" only", key, type->substr(0, 40)));
  auto text = json::get<std::string>(part, *type);
  if (!text) return bad(fmt::format("{}.{}", key, *type), fmt::format("'{}.{}' must be a string", key, *type));
  return std::move(*text);
}

/// The content of a message as one string: given in parts, the texts joined by line feeds.
Result<Value> parse_message_content(const Value& content, const std::string& key) {
  if (content.is_string() || content.is_null()) return content;
  if (!content.is_array()) return json::wrong_type(key, "a string or a list of parts", content);
  std::string joined;
  for (std::size_t i = 0; i < content.size(); ++i) {
    BATON_TRY(const std::string text, parse_part(content[i], fmt::format("{}[{}]", key, i)));
    if (i > 0) joined += '\n';
    joined += text;
  }
  return Value(std::move(joined));
}

/// A call as templates read it: {"id"?, "type", "function": {"name", "arguments"}}.
Result<Value> parse_call(const Value& given, const std::string& key) {
  if (!given.is_object()) return json::wrong_type(key, "an object", given);
  Value call = given;
  if (const Value* type = find_given(given, "type"); type != nullptr && !json::is_text(*type, "function"))
    return bad(key + ".type", fmt::format("'{}.type' must be \"function\"", key));
  call["type"] = "function";
  if (const Value* id = find_given(given, "id"); id != nullptr && !id->is_string())
    return json::wrong_type(key + ".id", "a string", *id);
  const Value* function = find_given(given, "function");
  if (function == nullptr || !function->is_object())
    return bad(key + ".function", fmt::format("'{}.function' must be an object with 'name' and 'arguments'", key));
  const Value* name = find_given(*function, "name");
  if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty())
    return bad(key + ".function.name", fmt::format("'{}.function.name' must be a string", key));
  const Value* arguments = find_given(*function, "arguments");
  if (arguments == nullptr)
    call["function"]["arguments"] = "{}";
  else if (!arguments->is_string() && !arguments->is_object())
    return json::wrong_type(key + ".function.arguments", "JSON text or an object", *arguments);
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
    return bad(name + ".tool_calls",
               fmt::format("'{}.tool_calls' has {} calls; this server accepts {}", name, given.size(), kMaxCallsOfMessage));
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
    if (!audio->is_null()) return bad(name + ".audio", fmt::format("'{}.audio' is not supported by this server", name));
    message.erase("audio");
  }
  if (const Value* refusal = json::find(message, "refusal")) {
    if (!refusal->is_null() && !refusal->is_string()) return json::wrong_type(name + ".refusal", "a string", *refusal);
    if (refusal->is_string() && find_given(message, "content") == nullptr) message["content"] = Value(*refusal);
    message.erase("refusal");
  }
  Value reasoning;
  for (const std::string_view field : {"reasoning", "reasoning_content"}) {
    const Value* given = json::find(message, field);
    if (given == nullptr) continue;
    if (!given->is_null() && !given->is_string())
      return json::wrong_type(fmt::format("{}.{}", name, field), "a string", *given);
    if (given->is_string()) reasoning = *given;
    message.erase(std::string(field));
  }
  if (reasoning.is_null()) return {};
  message["reasoning"] = reasoning;
  message["reasoning_content"] = std::move(reasoning);
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

Result<Value> parse_message(const Value& given, std::size_t index, const std::string& name, Earlier& earlier) {
  if (!given.is_object()) return json::wrong_type(name, "an object", given);
  Value message = given;
  const Value* role = json::find(message, "role");
  if (role == nullptr) return bad(name + ".role", fmt::format("'{}.role' is missing", name));
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
  if (content == nullptr && !(is_assistant && has_calls_field))
    return bad(name + ".content", fmt::format("'{}.content' is missing", name));
  if (content != nullptr) {  // templates tell one that is absent from null
    BATON_TRY(Value joined, parse_message_content(*content, name + ".content"));
    message["content"] = std::move(joined);
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

/// The arguments of a call as the template wants them.
Result<void> shape_arguments(Value& arguments, const std::string& key, const TemplateTraits& traits) {
  if (arguments.is_object()) {
    if (!traits.takes_object_arguments) arguments = json::dump(arguments);
    return {};
  }
  if (traits.takes_text_arguments) return {};
  const std::string text = arguments.get<std::string>();
  const bool is_blank = text.find_first_not_of(" \t\r\n") == std::string::npos;
  auto parsed = is_blank ? Result<Value>(Value::object()) : json::parse(text, key);
  if (!parsed) return bad(key, fmt::format("'{}' must be the text of a JSON object: {}", key, parsed.error().message));
  if (!parsed->is_object()) return json::wrong_type(key, "the text of a JSON object", *parsed);
  arguments = std::move(*parsed);
  return {};
}

void shorten_id(Value& object, const std::string& key) {
  if (const Value* id = find_given(object, key)) object[key] = short_call_id(id->get_ref<const std::string&>());
}

/// For templates that do not show calls: they follow the content as a list of {"name", "arguments"}.
void write_calls_as_content(Value& message) {
  Value list = Value::array();
  for (const Value& call : message["tool_calls"]) {
    const Value& function = call["function"];
    const Value& arguments = function["arguments"];
    auto parsed = arguments.is_string() ? json::parse(arguments.get_ref<const std::string&>(), "arguments") : arguments;
    Value& written = list.emplace_back();
    written["name"] = function["name"];
    written["arguments"] = parsed ? std::move(*parsed) : arguments;
  }
  const Value* content = find_given(message, "content");
  const std::string before = content == nullptr ? std::string() : content->get<std::string>();
  message["content"] = before + (before.empty() ? "" : "\n") + json::dump(list);
  message.erase("tool_calls");
}

Result<void> shape_calls(Value& message, const std::string& name, const TemplateTraits& traits) {
  if (!traits.shows_calls) {
    write_calls_as_content(message);
    return {};
  }
  Value& calls = message["tool_calls"];
  for (std::size_t i = 0; i < calls.size(); ++i) {
    BATON_TRY_VOID(shape_arguments(calls[i]["function"]["arguments"],
                                   fmt::format("{}.tool_calls[{}].function.arguments", name, i), traits));
    if (traits.has_short_ids) shorten_id(calls[i], "id");
  }
  const Value* content = json::find(message, "content");
  const bool is_text = content != nullptr && content->is_string();
  if (is_text && !content->get_ref<const std::string&>().empty()) return {};
  if (is_text ? traits.takes_empty_content : content == nullptr ? traits.takes_absent_content : traits.takes_null_content)
    return {};
  if (traits.takes_null_content)
    message["content"] = nullptr;
  else if (traits.takes_absent_content)
    message.erase("content");
  else
    message["content"] = "";
  return {};
}

}  // namespace

Result<Value> parse_messages(const Value& value, std::string_view key) {
  if (!value.is_array()) return json::wrong_type(key, "a list of messages", value);
  if (value.empty()) return bad(key, fmt::format("'{}' must hold at least one message", key));
  Value messages = Value::array();
  Earlier earlier;
  for (std::size_t i = 0; i < value.size(); ++i) {
    BATON_TRY(Value message, parse_message(value[i], i, fmt::format("{}[{}]", key, i), earlier));
    messages.push_back(std::move(message));
  }
  return messages;
}

Result<Value> shape_messages(Value messages, std::size_t n_before, const TemplateTraits& traits) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string name =
        i < n_before ? fmt::format("messages[{}] of the prefix", i) : fmt::format("messages[{}]", i - n_before);
    Value& message = messages[i];
    const std::string role = message["role"];
    if (role == "developer" && !traits.knows_developer) message["role"] = "system";
    if (role == "tool" && !traits.shows_results)
      return bad(name + ".role",
                 fmt::format("'{}.role' is \"tool\", and the model's chat template does not show results of tools; "
                             "--chat-template sets another one",
                             name));
    if (role == "tool" && traits.has_short_ids) shorten_id(message, "tool_call_id");
    if (role == "assistant" && message.contains("tool_calls")) BATON_TRY_VOID(shape_calls(message, name, traits));
  }
  return messages;
}

}  // namespace baton
