/// Blocks, tools and choices, one function for each.
#include "server/dialects/messages/request.h"

#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "server/dialects/fields.h"
#include "server/request/json_fields.h"

namespace baton {
namespace {

using json::Value;
using openai::bad;
using openai::find_given;

/// The last ones are no fields: only their errors are the chat completion's.
constexpr SameField kSameMessagesFields[] = {{"model", "model"},
                                             {"max_tokens", "max_tokens"},
                                             {"stop_sequences", "stop"},
                                             {"temperature", "temperature"},
                                             {"top_p", "top_p"},
                                             {"top_k", "top_k"},
                                             {"stream", "stream"},
                                             {"output_config.format", "response_format"},
                                             {"output_config.effort", "reasoning_effort"}};

constexpr RefusedField kRefusedMessagesFields[] = {
    {"container", ""}, {"mcp_servers", "[]"}, {"context_management", ""}, {"prefill", ""}};

/// Fields that are read here, and fields without effect on the answer.
constexpr std::string_view kKnownMessagesFields[] = {
    "messages", "system",       "tools",         "tool_choice", "thinking",    "output_config",   "cache_control",
    "metadata", "service_tier", "inference_geo", "speed",       "diagnostics", "user_profile_id", "workspace_id"};

/// What is read of a request so far.
struct MessagesReading {
  MessagesRequest request;
  Value messages = Value::array();  // of the chat completion
};

Result<std::string> type_of(const Value& block, const std::string& key) {
  if (!block.is_object()) return json::wrong_type(key, "an object", block);
  auto type = json::get<std::string>(block, "type");
  if (!type) return bad(key + ".type", fmt::format("'{}.type' must be a string", key));
  return std::move(*type);
}

Result<std::string> string_member(const Value& block, std::string_view name, const std::string& key) {
  auto text = json::get<std::string>(block, name);
  if (!text) return bad(fmt::format("{}.{}", key, name), fmt::format("'{}.{}' must be a string", key, name));
  return std::move(*text);
}

tl::unexpected<Error> refused_block(const std::string& key, std::string_view type, std::string_view accepted) {
  return bad(key + ".type",
             fmt::format("'{}.type' is \"{}\"; this server supports {} here", key, type.substr(0, 40), accepted));
}

/// Notes the mark of a block that has one.
Result<void> read_mark(const Value& block, const std::string& key, CacheMark place, std::vector<CacheMark>& marks) {
  const Value* control = find_given(block, "cache_control");
  if (control == nullptr) return {};
  const std::string name = key.empty() ? "cache_control" : key + ".cache_control";
  if (!control->is_object()) return json::wrong_type(name, "an object", *control);
  BATON_TRY(const std::string type, string_member(*control, "type", name));
  if (type != "ephemeral") return bad(name + ".type", fmt::format("'{}.type' must be \"ephemeral\"", name));
  if (const Value* ttl = find_given(*control, "ttl")) {
    if (*ttl != "5m" && *ttl != "1h") return bad(name + ".ttl", fmt::format("'{}.ttl' must be \"5m\" or \"1h\"", name));
    if (*ttl == "1h") place.ttl = std::chrono::hours(1);
  }
  if (marks.size() >= kMaxCacheMarks)
    return bad(name, fmt::format("'{}': a request has at most {} blocks with 'cache_control'", name, kMaxCacheMarks));
  marks.push_back(place);
  return {};
}

/// The text of a block of type "text".
Result<std::string> read_text(const Value& block, const std::string& key) {
  BATON_TRY(const std::string type, type_of(block, key));
  if (type != "text") return refused_block(key, type, "\"text\" only");
  return string_member(block, "text", key);
}

/// A tool as the `function` of a chat completion's.
Result<Value> read_tool(const Value& tool, const std::string& key) {
  if (const Value* type = find_given(tool, "type"); type != nullptr && !json::is_text(*type, "custom"))
    return refused_block(key, type->is_string() ? type->get_ref<const std::string&>() : json::dump(*type), "\"custom\" only");
  Value function;
  BATON_TRY(function["name"], string_member(tool, "name", key));
  if (const Value* description = find_given(tool, "description")) function["description"] = *description;
  const Value* schema = find_given(tool, "input_schema");
  if (schema == nullptr || !schema->is_object())
    return bad(key + ".input_schema", fmt::format("'{}.input_schema' must be a JSON schema, an object", key));
  function["parameters"] = *schema;
  if (const Value* strict = find_given(tool, "strict")) function["strict"] = *strict;
  return function;
}

Result<void> read_tools(const Value& body, MessagesReading& reading) {
  const auto read = [&](const Value& tool, const std::string& key, std::size_t index) -> Result<Value> {
    BATON_TRY(Value function, read_tool(tool, key));
    BATON_TRY_VOID(read_mark(tool, key, {CacheMark::Part::tools, index}, reading.request.marks));
    return function;
  };
  return read_dialect_tools(body, read, reading.request.chat);
}

Result<void> read_tool_choice(const Value& body, Value& chat) {
  constexpr std::string_view kKey = "tool_choice";
  const Value* choice = find_given(body, kKey);
  if (choice == nullptr) return {};
  BATON_TRY(const std::string type, type_of(*choice, std::string(kKey)));
  if (type == "auto" || type == "none") {
    chat[std::string(kKey)] = type;
  } else if (type == "any") {
    chat[std::string(kKey)] = "required";
  } else if (type == "tool") {
    Value named;
    named["type"] = "function";
    BATON_TRY(named["function"]["name"], string_member(*choice, "name", std::string(kKey)));
    chat[std::string(kKey)] = std::move(named);
  } else {
    return bad("tool_choice.type", fmt::format("'tool_choice.type' must be \"auto\", \"any\", \"tool\" or \"none\", not \"{}\"",
                                               type.substr(0, 40)));
  }
  BATON_TRY(const bool is_serial, openai::flag_field(*choice, "disable_parallel_tool_use", false));
  if (is_serial) chat["parallel_tool_calls"] = false;
  return {};
}

Result<void> read_system(const Value& body, MessagesReading& reading) {
  const Value* system = find_given(body, "system");
  if (system == nullptr) return {};
  if (system->is_string()) {
    reading.messages.push_back(chat_message("system", *system));
    return {};
  }
  if (!system->is_array()) return json::wrong_type("system", "a string or a list of blocks", *system);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < system->size(); ++i) {
    const std::string key = fmt::format("system[{}]", i);
    BATON_TRY(std::string text, read_text((*system)[i], key));
    BATON_TRY_VOID(read_mark((*system)[i], key, {CacheMark::Part::system, i}, reading.request.marks));
    texts.push_back(std::move(text));
  }
  if (!texts.empty()) reading.messages.push_back(chat_message("system", chat_content(std::move(texts))));
  return {};
}

/// The result of a tool as a message. One that failed says so: templates know no other way.
Result<Value> read_tool_result(const Value& block, const std::string& key) {
  std::vector<std::string> texts;
  const Value* content = find_given(block, "content");
  if (content != nullptr && content->is_array()) {
    for (std::size_t i = 0; i < content->size(); ++i) {
      BATON_TRY(std::string text, read_text((*content)[i], fmt::format("{}.content[{}]", key, i)));
      texts.push_back(std::move(text));
    }
  } else if (content != nullptr) {
    if (!content->is_string()) return json::wrong_type(key + ".content", "a string or a list of blocks", *content);
    texts.push_back(*content);
  }
  if (texts.empty()) texts.emplace_back();
  BATON_TRY(const bool is_error, openai::flag_field(block, "is_error", false));
  if (is_error) texts.front().insert(0, "Error: ");
  Value message = chat_message("tool", chat_content(std::move(texts)));
  BATON_TRY(message["tool_call_id"], string_member(block, "tool_use_id", key));
  return message;
}

Result<Value> read_tool_use(const Value& block, const std::string& key) {
  Value call;
  BATON_TRY(call["id"], string_member(block, "id", key));
  call["type"] = "function";
  BATON_TRY(call["function"]["name"], string_member(block, "name", key));
  const Value* input = find_given(block, "input");
  if (input == nullptr || !input->is_object()) return bad(key + ".input", fmt::format("'{}.input' must be an object", key));
  call["function"]["arguments"] = json::dump(*input);
  return call;
}

/// The blocks of one message: the results of tools become messages of their own, in their places.
class BlockReader {
 public:
  BlockReader(std::string role, MessagesReading& reading) : role_(std::move(role)), reading_(reading) {}

  Result<void> read(const Value& block, const std::string& key) {
    BATON_TRY(const std::string type, type_of(block, key));
    const bool is_assistant = role_ == "assistant";
    if (type == "text") {
      BATON_TRY(std::string text, string_member(block, "text", key));
      texts_.push_back(std::move(text));
    } else if (type == "tool_result" && role_ == "user") {
      flush();
      BATON_TRY(Value message, read_tool_result(block, key));
      reading_.messages.push_back(std::move(message));
      has_messages_ = true;
    } else if (type == "tool_use" && is_assistant) {
      BATON_TRY(Value call, read_tool_use(block, key));
      calls_.push_back(std::move(call));
    } else if (type == "thinking" && is_assistant) {
      BATON_TRY(const std::string text, string_member(block, "thinking", key));
      reasoning_ += text;
    } else {
      return refused_block(key, type,
                           is_assistant      ? "\"text\", \"thinking\" and \"tool_use\""
                           : role_ == "user" ? "\"text\" and \"tool_result\""
                                             : "\"text\" only");
    }
    return {};
  }

  void end() {
    if (!has_messages_ || !texts_.empty()) flush_always();
  }

 private:
  void flush() {
    if (!texts_.empty()) flush_always();
  }
  void flush_always() {
    Value message;
    message["role"] = role_;
    if (!texts_.empty() || calls_.empty()) {
      if (texts_.empty()) texts_.emplace_back();
      message["content"] = chat_content(std::exchange(texts_, {}));
    }
    if (!reasoning_.empty()) message["reasoning_content"] = reasoning_;
    if (!calls_.empty()) message["tool_calls"] = calls_;
    reading_.messages.push_back(std::move(message));
    has_messages_ = true;
  }

  const std::string role_;
  MessagesReading& reading_;
  std::vector<std::string> texts_;
  std::string reasoning_;
  Value calls_ = Value::array();
  bool has_messages_ = false;
};

Result<void> read_message(const Value& message, std::size_t index, MessagesReading& reading) {
  const std::string key = fmt::format("messages[{}]", index);
  if (!message.is_object()) return json::wrong_type(key, "an object", message);
  BATON_TRY(const std::string role, string_member(message, "role", key));
  if (role != "user" && role != "assistant" && role != "system")
    return bad(key + ".role",
               fmt::format("'{}.role' must be \"user\", \"assistant\" or \"system\", not \"{}\"", key, role.substr(0, 40)));
  const Value* content = find_given(message, "content");
  if (content == nullptr) return bad(key + ".content", fmt::format("'{}.content' is missing", key));
  if (content->is_string()) {
    reading.messages.push_back(chat_message(role, *content));
    return {};
  }
  if (!content->is_array()) return json::wrong_type(key + ".content", "a string or a list of blocks", *content);
  BlockReader blocks(role, reading);
  for (std::size_t i = 0; i < content->size(); ++i) {
    const std::string name = fmt::format("{}.content[{}]", key, i);
    BATON_TRY_VOID(blocks.read((*content)[i], name));
    BATON_TRY_VOID(read_mark((*content)[i], name, {CacheMark::Part::messages, index, i}, reading.request.marks));
  }
  blocks.end();
  return {};
}

Result<void> read_messages(const Value& body, MessagesReading& reading) {
  const Value* messages = find_given(body, "messages");
  if (messages == nullptr) return json::missing("messages");
  if (!messages->is_array()) return json::wrong_type("messages", "a list of messages", *messages);
  if (messages->empty()) return bad("messages", "'messages' must hold at least one message");
  for (std::size_t i = 0; i < messages->size(); ++i) BATON_TRY_VOID(read_message((*messages)[i], i, reading));
  // Without a block of its own the mark is the last one's.
  const Value& last = messages->back()["content"];
  const std::size_t last_block = last.is_array() && !last.empty() ? last.size() - 1 : 0;
  BATON_TRY_VOID(read_mark(body, "", {CacheMark::Part::messages, messages->size() - 1, last_block}, reading.request.marks));
  // The answer goes on where a last message of the assistant ends.
  const Value& final_message = reading.messages.back();
  if (!json::is_text(final_message["role"], "assistant")) return {};
  if (final_message.contains("tool_calls"))
    return bad("messages", "'messages' ends with \"tool_use\"; a \"tool_result\" for it is missing");
  reading.request.chat["continue_final_message"] = true;
  reading.request.chat["add_generation_prompt"] = false;
  return {};
}

Result<void> read_thinking(const Value& body, MessagesRequest& request) {
  const Value* thinking = find_given(body, "thinking");
  if (thinking == nullptr) return {};
  BATON_TRY(const std::string type, type_of(*thinking, "thinking"));
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    return bad("thinking.type", fmt::format("'thinking.type' must be \"enabled\", \"disabled\" or \"adaptive\", not \"{}\"",
                                            type.substr(0, 40)));
  Value& variables = request.chat["chat_template_kwargs"];
  if (variables.is_null()) variables = Value::object();
  if (variables.is_object() && !variables.contains("enable_thinking")) variables["enable_thinking"] = type != "disabled";
  if (find_given(*thinking, "budget_tokens") != nullptr) request.unknown_fields.emplace_back("thinking.budget_tokens");
  return {};
}

Result<void> read_output_config(const Value& body, Value& chat) {
  const Value* config = find_given(body, "output_config");
  if (config == nullptr) return {};
  if (!config->is_object()) return json::wrong_type("output_config", "an object", *config);
  if (const Value* effort = find_given(*config, "effort")) chat["reasoning_effort"] = *effort;
  const Value* format = find_given(*config, "format");
  if (format == nullptr) return {};
  BATON_TRY(const std::string type, type_of(*format, "output_config.format"));
  const Value* schema = find_given(*format, "schema");
  if (type != "json_schema" || schema == nullptr)
    return bad("output_config.format", "'output_config.format' must be {\"type\": \"json_schema\", \"schema\": ...}");
  Value translated;
  translated["type"] = "json_schema";
  translated["json_schema"]["name"] = "output";
  translated["json_schema"]["schema"] = *schema;
  translated["json_schema"]["strict"] = true;
  chat["response_format"] = std::move(translated);
  return {};
}

}  // namespace

Result<MessagesRequest> read_messages_request(const Value& body, bool needs_max_tokens) {
  BATON_TRY_VOID(check_dialect_fields(body, kRefusedMessagesFields));
  MessagesReading reading;
  MessagesRequest& request = reading.request;
  request.chat = Value::object();
  request.unknown_fields = unknown_dialect_fields(body, kKnownMessagesFields, kSameMessagesFields, kRefusedMessagesFields);
  copy_same_fields(body, kSameMessagesFields, request.chat);
  if (needs_max_tokens && find_given(body, "max_tokens") == nullptr) return json::missing("max_tokens");
  if (const Value* stop = find_given(body, "stop_sequences"); stop != nullptr && !stop->is_array())
    return json::wrong_type("stop_sequences", "a list of strings", *stop);
  BATON_TRY_VOID(read_tools(body, reading));
  BATON_TRY_VOID(read_tool_choice(body, request.chat));
  BATON_TRY_VOID(read_system(body, reading));
  BATON_TRY_VOID(read_messages(body, reading));
  BATON_TRY_VOID(read_thinking(body, request));
  BATON_TRY_VOID(read_output_config(body, request.chat));
  request.chat["messages"] = std::move(reading.messages);
  return std::move(request);
}

Error messages_error(Error error) { return in_words_of(kSameMessagesFields, std::move(error)); }

Value cut_at_mark(const Value& body, const CacheMark& mark) {
  const auto keep_first = [](Value& list, std::size_t n) {
    if (list.is_array() && list.size() > n) list.erase(list.begin() + static_cast<std::ptrdiff_t>(n), list.end());
  };
  Value cut = body;
  if (mark.part == CacheMark::Part::messages) {
    keep_first(cut["messages"], mark.index + 1);
    keep_first(cut["messages"].back()["content"], mark.block + 1);
    return cut;
  }
  cut["messages"] = Value::array({chat_message("user", "")});
  if (mark.part == CacheMark::Part::system) {
    keep_first(cut["system"], mark.index + 1);
  } else {
    keep_first(cut["tools"], mark.index + 1);
    cut.erase("system");
    // The choice may name a tool that is left out.
    cut.erase("tool_choice");
  }
  return cut;
}

}  // namespace baton
