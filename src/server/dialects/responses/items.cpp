/// Kinds of items, one function for each.
#include "server/dialects/responses/items.h"

#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "server/dialects/fields.h"
#include "server/request/json_fields.h"
#include "server/request/stamp.h"

namespace baton {
namespace {

using json::Value;
using openai::bad;
using openai::find_given;

Result<std::string> item_string(const Value& item, std::string_view name, const std::string& key) {
  auto text = json::get<std::string>(item, name);
  if (!text) return bad(fmt::format("{}.{}", key, name), fmt::format("'{}.{}' must be a string", key, name));
  return std::move(*text);
}

/// The texts of a content: a string, or a list of parts. `refused`: what is said of parts of other types.
Result<std::vector<std::string>> texts_of(const Value& content, const std::string& key) {
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
    BATON_TRY(const std::string type, item_string(part, "type", part_key));
    const bool is_text =
        type == "input_text" || type == "output_text" || type == "text" || type == "summary_text" || type == "reasoning_text";
    if (!is_text && type != "refusal")
      return bad(part_key + ".type", fmt::format("'{}.type' is \"{}\"; this model reads text only (\"input_text\" and "
                                                 "\"output_text\")",
                                                 part_key, type.substr(0, 40)));
    BATON_TRY(std::string text, item_string(part, is_text ? "text" : "refusal", part_key));
    texts.push_back(std::move(text));
  }
  if (texts.empty()) texts.emplace_back();
  return texts;
}

/// Makes messages of items in their order. What the assistant says in several items is one message.
class ItemReader {
 public:
  Result<void> read(const Value& item, const std::string& key) {
    BATON_TRY(const std::string type, item_string(item, "type", key));
    if (type == "message") return read_message(item, key);
    if (type == "function_call") return read_call(item, key);
    if (type == "function_call_output") return read_result(item, key);
    if (type == "reasoning") return read_reasoning(item, key);
    return bad(key + ".type", fmt::format("'{}.type' is \"{}\"; this server supports \"message\", \"function_call\", "
                                          "\"function_call_output\" and \"reasoning\"",
                                          key, type.substr(0, 40)));
  }

  Value take() {
    flush();
    return std::move(messages_);
  }

 private:
  Result<void> read_message(const Value& item, const std::string& key) {
    BATON_TRY(const std::string role, item_string(item, "role", key));
    if (role != "user" && role != "assistant" && role != "system" && role != "developer")
      return bad(key + ".role",
                 fmt::format("'{}.role' must be \"user\", \"assistant\", \"system\" or \"developer\", not \"{}\"", key,
                             role.substr(0, 40)));
    const Value* content = find_given(item, "content");
    if (content == nullptr) return bad(key + ".content", fmt::format("'{}.content' is missing", key));
    BATON_TRY(std::vector<std::string> texts, texts_of(*content, key + ".content"));
    if (role != "assistant") {
      flush();
      messages_.push_back(chat_message(role, chat_content(std::move(texts))));
      return {};
    }
    if (has_content_ || !calls_.empty()) flush();
    content_ = chat_content(std::move(texts));
    has_content_ = true;
    return {};
  }

  Result<void> read_call(const Value& item, const std::string& key) {
    Value call;
    BATON_TRY(call["id"], item_string(item, "call_id", key));
    call["type"] = "function";
    BATON_TRY(call["function"]["name"], item_string(item, "name", key));
    BATON_TRY(call["function"]["arguments"], item_string(item, "arguments", key));
    calls_.push_back(std::move(call));
    return {};
  }

  Result<void> read_result(const Value& item, const std::string& key) {
    const Value* output = find_given(item, "output");
    if (output == nullptr) return bad(key + ".output", fmt::format("'{}.output' is missing", key));
    BATON_TRY(std::vector<std::string> texts, texts_of(*output, key + ".output"));
    flush();
    Value message = chat_message("tool", chat_content(std::move(texts)));
    BATON_TRY(message["tool_call_id"], item_string(item, "call_id", key));
    messages_.push_back(std::move(message));
    return {};
  }

  /// Its text, or else its summary. What is encrypted for another server says nothing here.
  Result<void> read_reasoning(const Value& item, const std::string& key) {
    if (has_content_ || !calls_.empty()) flush();
    for (const std::string_view member : {"content", "summary"}) {
      const Value* parts = find_given(item, member);
      if (parts == nullptr || parts->empty()) continue;
      BATON_TRY(const std::vector<std::string> texts, texts_of(*parts, fmt::format("{}.{}", key, member)));
      for (const std::string& text : texts) reasoning_ += text;
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
    messages_.push_back(std::move(message));
    has_content_ = false;
  }

  Value messages_ = Value::array();
  // Of the assistant's message that is not complete.
  Value content_;
  bool has_content_ = false;
  std::string reasoning_;
  Value calls_ = Value::array();
};

}  // namespace

std::string new_item_id(std::string_view type) {
  const std::string_view kind = type == "message"         ? "msg_"
                                : type == "reasoning"     ? "rs_"
                                : type == "function_call" ? "fc_"
                                                          : "item_";
  return std::string(kind) + random_id();
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
    if (find_given(item, "type") == nullptr) item["type"] = "message";
    const Value& type = item["type"];
    if (find_given(item, "id") == nullptr) item["id"] = new_item_id(type.is_string() ? std::string(type) : std::string());
    items.push_back(std::move(item));
  }
  return items;
}

Result<Value> messages_of_items(const Value& items) {
  ItemReader reader;
  for (std::size_t i = 0; i < items.size(); ++i) BATON_TRY_VOID(reader.read(items[i], fmt::format("input[{}]", i)));
  return reader.take();
}

}  // namespace baton
