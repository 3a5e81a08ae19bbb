/// Kinds of blocks, one function for each.
#include "server/dialects/messages/blocks.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "server/dialects/fields.h"
#include "server/request/chat_history.h"
#include "server/request/json_fields.h"

namespace baton {
namespace {

using json::Value;

tl::unexpected<Error> refused_block(const std::string& key, std::string_view type, std::string_view accepted) {
  return bad_field(key + ".type", "is \"{}\"; this server supports {} here", type.substr(0, 40), accepted);
}

Result<std::string> read_text(const Value& block, const std::string& key) {
  BATON_TRY(const std::string type, block_type(block, key));
  if (type != "text") return refused_block(key, type, "\"text\" only");
  return string_member(block, "text", key);
}

/// The texts of a list of blocks, by lines; blocks of other types say nothing.
std::string lines_of(const Value* content) {
  if (content == nullptr) return {};
  if (content->is_string()) return *content;
  std::string lines;
  if (content->is_array())
    for (const Value& block : *content)
      if (const Value* text = find_given(block, "text"); text != nullptr && text->is_string())
        lines += (lines.empty() ? "" : "\n") + text->get_ref<const std::string&>();
  return lines;
}

/// What a block says that brings a text from elsewhere; nullopt: it is another block, or the text is not in it.
std::optional<std::string> text_from_elsewhere(const Value& block, std::string_view type) {
  std::string text;
  const auto add = [&](const Value* piece) {
    if (piece != nullptr && piece->is_string() && !piece->get_ref<const std::string&>().empty())
      text += (text.empty() ? "" : "\n") + piece->get_ref<const std::string&>();
  };
  if (type == "search_result") {
    for (const char* const member : {"title", "source"}) add(find_given(block, member));
    const Value lines = lines_of(find_given(block, "content"));
    add(&lines);
    return text;
  }
  if (type == "compaction") return lines_of(find_given(block, "content"));
  const Value* source = type == "document" ? find_given(block, "source") : nullptr;
  const Value* kind = source == nullptr ? nullptr : find_given(*source, "type");
  if (kind == nullptr || (!json::is_text(*kind, "text") && !json::is_text(*kind, "content"))) return std::nullopt;
  for (const char* const member : {"title", "context"}) add(find_given(block, member));
  add(find_given(*source, "data"));
  const Value lines = lines_of(find_given(*source, "content"));
  add(&lines);
  return text;
}

/// What stands for a block that is no text, in a word; empty: it is none of these.
std::string_view kind_of_block(std::string_view type) { return type == "image" ? "image" : type == "document" ? "file" : ""; }

/// The texts of a tool's result.
Result<std::vector<std::string>> result_texts(const Value* content, const std::string& key) {
  std::vector<std::string> texts;
  if (content != nullptr && content->is_string()) texts.push_back(*content);
  if (content != nullptr && !content->is_string() && !content->is_array())
    return json::wrong_type(key, "a string or a list of blocks", *content);
  for (std::size_t i = 0; content != nullptr && content->is_array() && i < content->size(); ++i) {
    const Value& block = (*content)[i];
    const std::string name = fmt::format("{}[{}]", key, i);
    BATON_TRY(const std::string type, block_type(block, name));
    if (type == "text") {
      BATON_TRY(std::string text, string_member(block, "text", name));
      texts.push_back(std::move(text));
    } else if (auto text = text_from_elsewhere(block, type)) {
      texts.push_back(std::move(*text));
    } else if (const std::string_view kind = kind_of_block(type); !kind.empty()) {
      texts.push_back(omitted_text(kind));
    } else if (const Value* tool = type == "tool_reference" ? find_given(block, "tool_name") : nullptr;
               tool != nullptr && tool->is_string()) {
      texts.push_back("Found: " + tool->get_ref<const std::string&>());
    } else {
      texts.push_back(json::dump(block));
    }
  }
  if (texts.empty()) texts.emplace_back();
  return texts;
}

/// The result of a tool as a message. One that failed says so: templates know no other way.
Result<Value> read_tool_result(const Value& block, const std::string& key) {
  BATON_TRY(std::vector<std::string> texts, result_texts(find_given(block, "content"), key + ".content"));
  BATON_TRY(const bool is_error, flag_field(block, "is_error", false));
  if (is_error) texts.front().insert(0, "Error: ");
  Value message = chat_message("tool", chat_content(std::move(texts)));
  BATON_TRY(message["tool_call_id"], string_member(block, "tool_use_id", key));
  return message;
}

/// A call, whatever a model has written as its input.
Result<Value> read_tool_use(const Value& block, const std::string& key) {
  Value call;
  BATON_TRY(call["id"], string_member(block, "id", key));
  call["type"] = "function";
  BATON_TRY(call["function"]["name"], string_member(block, "name", key));
  const Value* input = find_given(block, "input");
  call["function"]["arguments"] = input == nullptr ? "{}" : input->is_string() ? input->get<std::string>() : json::dump(*input);
  return call;
}

/// Blocks that say nothing to this model wherever they stand. What an assistant's message has besides is left out too.
bool is_silent(std::string_view type) {
  constexpr std::string_view kSilent[] = {"thinking",      "redacted_thinking", "server_tool_use",  "mcp_tool_use",
                                          "tool_addition", "tool_removal",      "mcp_tool_listing", "container_upload",
                                          "fallback",      "tool_reference"};
  return std::ranges::find(kSilent, type) != std::end(kSilent) || (type.ends_with("_tool_result") && type != "tool_result");
}

/// The blocks of one message: the results of tools become messages of their own, in their places.
class BlockReader {
 public:
  BlockReader(std::string role, bool is_last, MessagesReading& reading)
      : role_(std::move(role)), is_last_(is_last), reading_(reading) {}

  Result<void> read(const Value& block, const std::string& key) {
    BATON_TRY(const std::string type, block_type(block, key));
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
      if (const Value* text = find_given(block, "thinking"); text != nullptr && text->is_string())
        reasoning_ += text->get_ref<const std::string&>();
    } else if (auto text = text_from_elsewhere(block, type)) {
      texts_.push_back(std::move(*text));
    } else {
      return read_other(type, key);
    }
    return {};
  }

  void end() {
    // Nothing is left of a last message of the assistant: the answer begins again.
    const bool is_empty = texts_.empty() && calls_.empty() && reasoning_.empty();
    if (is_empty && is_last_ && has_left_out_ && role_ == "assistant") return;
    if (!has_messages_ || !texts_.empty()) flush_always();
  }

 private:
  /// A block that is no text of this model's.
  Result<void> read_other(const std::string& type, const std::string& key) {
    const bool is_assistant = role_ == "assistant";
    const std::string_view kind = kind_of_block(type);
    if (!is_assistant && !kind.empty() && !is_last_) {
      texts_.push_back(omitted_text(kind));
      return {};
    }
    if (!is_assistant && !is_silent(type))
      return refused_block(key, type, role_ == "user" ? "\"text\" and \"tool_result\"" : "\"text\" only");
    has_left_out_ = true;
    reading_.request.unknown_fields.push_back(fmt::format("block \"{}\"", type.substr(0, 40)));
    return {};
  }
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
  const bool is_last_;
  MessagesReading& reading_;
  std::vector<std::string> texts_;
  std::string reasoning_;
  Value calls_ = Value::array();
  bool has_messages_ = false;
  bool has_left_out_ = false;
};

}  // namespace

Result<std::string> block_type(const Value& block, const std::string& key) {
  if (!block.is_object()) return json::wrong_type(key, "an object", block);
  return string_member(block, "type", key);
}

Result<void> read_mark(const Value& block, const std::string& key, CacheMark place, std::vector<CacheMark>& marks) {
  const Value* control = find_given(block, "cache_control");
  if (control == nullptr) return {};
  const std::string name = key.empty() ? "cache_control" : key + ".cache_control";
  if (!control->is_object()) return json::wrong_type(name, "an object", *control);
  BATON_TRY(const std::string type, string_member(*control, "type", name));
  if (type != "ephemeral") return bad_field(name + ".type", "must be \"ephemeral\"");
  if (const Value* ttl = find_given(*control, "ttl")) {
    if (*ttl != "5m" && *ttl != "1h") return bad_field(name + ".ttl", "must be \"5m\" or \"1h\"");
    if (*ttl == "1h") place.ttl = std::chrono::hours(1);
  }
  if (marks.size() >= kMaxCacheMarks)
    return bad(name, "'{}': a request has at most {} blocks with 'cache_control'", name, kMaxCacheMarks);
  marks.push_back(place);
  return {};
}

Result<void> read_system(const Value& system, MessagesReading& reading) {
  if (system.is_string()) {
    reading.messages.push_back(chat_message("system", system));
    return {};
  }
  if (!system.is_array()) return json::wrong_type("system", "a string or a list of blocks", system);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < system.size(); ++i) {
    const std::string key = fmt::format("system[{}]", i);
    BATON_TRY(std::string text, read_text(system[i], key));
    BATON_TRY_VOID(read_mark(system[i], key, {CacheMark::Part::system, i}, reading.request.marks));
    texts.push_back(std::move(text));
  }
  if (!texts.empty()) reading.messages.push_back(chat_message("system", chat_content(std::move(texts))));
  return {};
}

Result<void> read_message_blocks(const Value& message, std::size_t index, bool is_last, MessagesReading& reading) {
  const std::string key = fmt::format("messages[{}]", index);
  if (!message.is_object()) return json::wrong_type(key, "an object", message);
  BATON_TRY(const std::string role, string_member(message, "role", key));
  if (role != "user" && role != "assistant" && role != "system")
    return bad_field(key + ".role", "must be \"user\", \"assistant\" or \"system\", not \"{}\"", role.substr(0, 40));
  const Value* content = find_given(message, "content");
  if (content == nullptr && role != "assistant") return bad_field(key + ".content", "is missing");
  if (content == nullptr || content->is_string()) {
    reading.messages.push_back(chat_message(role, content == nullptr ? Value("") : *content));
    return {};
  }
  if (!content->is_array()) return json::wrong_type(key + ".content", "a string or a list of blocks", *content);
  BlockReader blocks(role, is_last, reading);
  for (std::size_t i = 0; i < content->size(); ++i) {
    const std::string name = fmt::format("{}.content[{}]", key, i);
    BATON_TRY_VOID(blocks.read((*content)[i], name));
    BATON_TRY_VOID(read_mark((*content)[i], name, {CacheMark::Part::messages, index, i}, reading.request.marks));
  }
  blocks.end();
  return {};
}

}  // namespace baton
