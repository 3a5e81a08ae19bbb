/// Roles and places, parts, arguments.
#include "server/served/shape_messages.h"

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/json_parse.h"
#include "server/request/json_fields.h"
#include "server/request/stamp.h"

namespace baton {
namespace {

using json::Value;

constexpr std::string_view kBetweenTexts = "\n\n";

/// The text of a content: a string, a list of texts, or null.
std::string text_of(const Value* content) {
  if (content == nullptr || content->is_null()) return {};
  if (content->is_string()) return *content;
  std::string joined;
  for (std::size_t i = 0; i < content->size(); ++i) {
    if (i > 0) joined += '\n';
    joined += (*content)[i]["text"].get_ref<const std::string&>();
  }
  return joined;
}

std::string text_of(const Value& message) { return text_of(find_given(message, "content")); }

std::string joined(std::string first, std::string_view second) {
  if (!first.empty() && !second.empty()) first += kBetweenTexts;
  first += second;
  return first;
}

bool has_role(const Value& message, std::string_view role) { return json::is_text(message["role"], role); }
bool is_system(const Value& message) { return has_role(message, "system") || has_role(message, "developer"); }

Value user_message(std::string text) {
  Value message;
  message["role"] = "user";
  message["content"] = std::move(text);
  return message;
}

/// The messages with results as texts of the user. Adjacent ones, and the user's message after them, become one.
Value with_results_as_texts(Value messages) {
  Value made = Value::array();
  bool ends_with_result = false;
  for (Value& message : messages) {
    const bool is_result = has_role(message, "tool");
    if (!is_result && !(ends_with_result && has_role(message, "user"))) {
      made.push_back(std::move(message));
      ends_with_result = false;
      continue;
    }
    std::string text = text_of(message);
    const Value* name = find_given(message, "name");
    if (is_result && name != nullptr && name->is_string())
      text = "Result of " + name->get_ref<const std::string&>() + ": " + text;
    if (ends_with_result)
      made.back()["content"] = joined(made.back()["content"], text);
    else
      made.push_back(user_message(std::move(text)));
    ends_with_result = is_result;
  }
  return made;
}

/// Puts messages of the system where the template shows them.
class SystemPlacer {
 public:
  SystemPlacer(Value messages, const TemplateTraits& traits) : messages_(std::move(messages)), traits_(traits) {}

  Value place() {
    for (std::size_t i = 0; i < messages_.size();) {
      const std::size_t end = end_of_systems(i);
      if (end > i)
        place_systems(i, end);
      else
        place_other(std::move(messages_[i]));
      i = end > i ? end : i + 1;
    }
    if (!waiting_.empty()) placed_.push_back(user_message(std::move(waiting_)));
    return std::move(placed_);
  }

 private:
  /// After the messages of the system that begin at `from`.
  std::size_t end_of_systems(std::size_t from) const {
    while (from < messages_.size() && is_system(messages_[from])) ++from;
    return from;
  }
  void place_systems(std::size_t from, std::size_t end) {
    const bool is_last = end == messages_.size();
    const bool is_shown = from == 0 ? traits_.shows_system : is_last ? traits_.shows_last_system : traits_.shows_later_system;
    // Alone, a message of the system is no end of a conversation but its front.
    if (is_shown && (end - from == 1 || traits_.shows_two_systems)) {
      for (std::size_t i = from; i < end; ++i) placed_.push_back(std::move(messages_[i]));
      return;
    }
    std::string text = text_of(messages_[from]);
    for (std::size_t i = from + 1; i < end; ++i) text = joined(std::move(text), text_of(messages_[i]));
    if (is_shown) {
      messages_[from]["content"] = std::move(text);
      placed_.push_back(std::move(messages_[from]));
    } else if (from == 0 || (!is_last && has_role(messages_[end], "user"))) {
      waiting_ = std::move(text);
    } else if (has_role(placed_.back(), "user") || has_role(placed_.back(), "tool")) {
      placed_.back()["content"] = joined(text_of(placed_.back()), text);
    } else {
      placed_.push_back(user_message(std::move(text)));
    }
  }
  void place_other(Value message) {
    if (!waiting_.empty() && has_role(message, "user"))
      message["content"] = joined(std::exchange(waiting_, {}), text_of(message));
    else if (!waiting_.empty())
      placed_.push_back(user_message(std::exchange(waiting_, {})));
    placed_.push_back(std::move(message));
  }

  Value messages_;
  const TemplateTraits& traits_;
  Value placed_ = Value::array();
  std::string waiting_;  // text of the system for the user's next message
};

/// What JSON text says, as an object: itself, what a text in it says, or an object that holds it.
Value object_of(const std::string& text) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Value::object();
  constexpr int kMaxEncodings = 3;
  std::string inner = text;
  Value said = text;
  for (int i = 0; i < kMaxEncodings; ++i) {
    auto parsed = json::parse_exact(inner, "the arguments");
    if (!parsed) break;
    if (parsed->is_object()) return std::move(*parsed);
    if (!parsed->is_string()) {
      if (i == 0) said = std::move(*parsed);
      break;
    }
    inner = parsed->get_ref<const std::string&>();
  }
  Value holder = Value::object();
  holder["arguments"] = std::move(said);
  return holder;
}

/// The arguments of a call as the template takes them.
void shape_arguments(Value& arguments, const TemplateTraits& traits) {
  if (arguments.is_object()) {
    if (!traits.takes_object_arguments) arguments = json::dump(arguments);
    return;
  }
  const std::string text = arguments;
  if (traits.takes_text_arguments) {
    if (traits.takes_broken_arguments) return;
    if (const auto parsed = json::parse(text, "the arguments"); parsed && parsed->is_object()) return;
  }
  arguments = object_of(text);
  if (!traits.takes_object_arguments) arguments = json::dump(arguments);
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
    auto parsed = arguments.is_string() ? json::parse_exact(arguments.get_ref<const std::string&>(), "arguments") : arguments;
    Value& written = list.emplace_back();
    written["name"] = function["name"];
    written["arguments"] = parsed ? std::move(*parsed) : arguments;
  }
  const std::string before = text_of(message);
  message["content"] = before + (before.empty() ? "" : "\n") + json::dump(list);
  message.erase("tool_calls");
}

/// For each of at least one call the numbers of its results, by id: of two calls with one id the first has them. Results that name no
/// call belong to the last one.
std::vector<std::vector<std::size_t>> results_of_calls(const Value& calls, std::span<const Value> results) {
  std::map<std::string, std::size_t, std::less<>> call_of_id;
  for (std::size_t i = 0; i < calls.size(); ++i)
    if (const Value* id = find_given(calls[i], "id"); id != nullptr && id->is_string())
      call_of_id.emplace(id->get_ref<const std::string&>(), i);
  std::vector<std::vector<std::size_t>> of_calls(calls.size());
  for (std::size_t k = 0; k < results.size(); ++k) {
    const Value* id = find_given(results[k], "tool_call_id");
    const auto call = id != nullptr && id->is_string() ? call_of_id.find(id->get_ref<const std::string&>()) : call_of_id.end();
    of_calls[call != call_of_id.end() ? call->second : calls.size() - 1].push_back(k);
  }
  return of_calls;
}

/// Each call of the message as a message with its results. The first one has what else the message says.
void add_single_calls(Value message, std::span<Value> results, Value& made) {
  Value calls = std::exchange(message["tool_calls"], Value::array());
  const auto of_calls = results_of_calls(calls, results);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    message["tool_calls"] = Value::array({std::move(calls[i])});
    made.push_back(std::move(message));
    message = {{"role", "assistant"}, {"content", ""}};
    for (const std::size_t k : of_calls[i]) made.push_back(std::move(results[k]));
  }
}

/// The messages with at most one call each.
Value with_single_calls(Value messages) {
  Value made = Value::array();
  for (std::size_t i = 0; i < messages.size();) {
    Value& message = messages[i++];
    const Value* calls = has_role(message, "assistant") ? find_given(message, "tool_calls") : nullptr;
    if (calls == nullptr || calls->size() < 2) {
      made.push_back(std::move(message));
      continue;
    }
    const std::size_t first = i;
    while (i < messages.size() && has_role(messages[i], "tool")) ++i;
    auto& all = messages.get_ref<Value::array_t&>();
    add_single_calls(std::move(message), std::span<Value>(all).subspan(first, i - first), made);
  }
  return made;
}

/// Content beside calls becomes the end of the reasoning.
void append_content_to_reasoning(Value& message) {
  const std::string content = text_of(message);
  const Value* reasoning = find_given(message, "reasoning");
  if (content.empty() || reasoning == nullptr || !reasoning->is_string()) return;
  const std::string all = joined(*reasoning, content);
  for (const std::string_view key : {"reasoning", "reasoning_content", "thinking"}) message[std::string(key)] = all;
  message["content"] = "";
}

void shape_calls(Value& message, const TemplateTraits& traits) {
  if (!traits.shows_calls) {
    write_calls_as_content(message);
    return;
  }
  if (!traits.takes_thoughtful_calls) append_content_to_reasoning(message);
  for (Value& call : message["tool_calls"]) {
    shape_arguments(call["function"]["arguments"], traits);
    if (traits.has_short_ids) shorten_id(call, "id");
  }
  const Value* content = json::find(message, "content");
  const bool is_text = content != nullptr && !content->is_null();
  if (is_text && !text_of(content).empty()) return;
  if (is_text ? traits.takes_empty_content : content == nullptr ? traits.takes_absent_content : traits.takes_null_content)
    return;
  if (traits.takes_null_content)
    message["content"] = nullptr;
  else if (traits.takes_absent_content)
    message.erase("content");
  else
    message["content"] = "";
}

/// A list of texts as one text, where the template does not take the list.
void shape_parts(Value& message, const TemplateTraits& traits) {
  const Value* content = json::find(message, "content");
  if (content == nullptr || !content->is_array()) return;
  const bool is_taken = has_role(message, "user")        ? traits.takes_user_parts
                        : has_role(message, "assistant") ? traits.takes_assistant_parts
                        : has_role(message, "tool")      ? traits.takes_tool_parts
                                                         : is_system(message) && traits.takes_system_parts;
  // Beside calls a template may look into the text.
  if (!is_taken || message.contains("tool_calls")) message["content"] = text_of(content);
}

}  // namespace

Value shape_messages(Value messages, const TemplateTraits& traits) {
  if (!traits.knows_developer)
    for (Value& message : messages)
      if (has_role(message, "developer")) message["role"] = "system";
  messages = SystemPlacer(std::move(messages), traits).place();
  if (!traits.shows_results) messages = with_results_as_texts(std::move(messages));
  if (traits.shows_calls && !traits.shows_several_calls) messages = with_single_calls(std::move(messages));
  for (Value& message : messages) {
    shape_parts(message, traits);
    if (has_role(message, "tool") && traits.has_short_ids) shorten_id(message, "tool_call_id");
    if (has_role(message, "assistant") && message.contains("tool_calls")) shape_calls(message, traits);
  }
  return messages;
}

Value shape_tools(Value tools, const TemplateTraits& traits) {
  if (traits.takes_bare_tools || !tools.is_array()) return tools;
  for (Value& tool : tools) {
    Value& function = tool["function"];
    if (function.is_object() && find_given(function, "description") == nullptr) function["description"] = "";
  }
  return tools;
}

}  // namespace baton
