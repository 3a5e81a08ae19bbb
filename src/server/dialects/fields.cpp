/// Known, refused and copied fields.
#include "server/dialects/fields.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "server/request/json_fields.h"

namespace baton {
namespace {

using json::Value;

constexpr std::size_t kMaxDialectFields = 1000;
constexpr std::size_t kMaxShownName = 64;

constexpr std::string_view kOwnFields[] = {"prefix",
                                           "cache_salt",
                                           "prompt_cache_key",
                                           "priority",
                                           "deadline_ms",
                                           "request_id",
                                           "chat_template_kwargs",
                                           "seed",
                                           "min_p",
                                           "presence_penalty",
                                           "frequency_penalty",
                                           "repetition_penalty",
                                           "logit_bias",
                                           "bad_words",
                                           "allowed_token_ids",
                                           "min_tokens",
                                           "ignore_eos",
                                           "stop_token_ids",
                                           "skip_special_tokens",
                                           "speculative_config",
                                           "structured_outputs"};

}  // namespace

Result<void> check_dialect_fields(const Value& body, std::span<const RefusedField> refused) {
  // Looking up a field is linear.
  if (body.size() > kMaxDialectFields)
    return fail(ErrorCode::invalid_request,
                fmt::format("the request body has {} fields; this server accepts {}", body.size(), kMaxDialectFields));
  for (const RefusedField& field : refused) {
    const Value* value = openai::find_given(body, field.name);
    if (value == nullptr || (!field.neutral.empty() && json::dump(*value) == field.neutral)) continue;
    return openai::bad(field.name, fmt::format("'{}' is not supported by this server; the value accepted is {}", field.name,
                                               field.neutral.empty() ? "null" : field.neutral));
  }
  return {};
}

void copy_same_fields(const Value& body, std::span<const SameField> same, Value& chat) {
  for (const SameField& field : same)
    if (const Value* value = openai::find_given(body, field.name)) chat[std::string(field.chat_name)] = *value;
  for (const std::string_view name : kOwnFields)
    if (const Value* value = openai::find_given(body, name)) chat[std::string(name)] = *value;
}

std::vector<std::string> unknown_dialect_fields(const Value& body, std::span<const std::string_view> known,
                                                std::span<const SameField> same, std::span<const RefusedField> refused) {
  std::vector<std::string> unknown;
  for (const auto& [name, value] : body.get_ref<const Value::object_t&>()) {
    const bool is_known = std::ranges::find(known, name) != known.end() ||
                          std::ranges::find(kOwnFields, name) != std::end(kOwnFields) ||
                          std::ranges::find(same, name, &SameField::name) != same.end() ||
                          std::ranges::find(refused, name, &RefusedField::name) != refused.end();
    if (!is_known) unknown.push_back(name.substr(0, kMaxShownName));
  }
  return unknown;
}

Error in_words_of(std::span<const SameField> same, Error error) {
  const auto field = std::ranges::find(same, error.param, &SameField::chat_name);
  if (field == same.end() || field->name == field->chat_name) return error;
  const std::string chat_name = fmt::format("'{}'", field->chat_name);
  if (const auto at = error.message.find(chat_name); at != std::string::npos)
    error.message.replace(at, chat_name.size(), fmt::format("'{}'", field->name));
  error.param = field->name;
  return error;
}

Result<void> read_dialect_tools(const Value& body, const ReadTool& read, Value& chat) {
  const Value* given = openai::find_given(body, "tools");
  if (given == nullptr) return {};
  if (!given->is_array()) return json::wrong_type("tools", "a list of tools", *given);
  Value tools = Value::array();
  for (std::size_t i = 0; i < given->size(); ++i) {
    const std::string key = fmt::format("tools[{}]", i);
    if (!(*given)[i].is_object()) return json::wrong_type(key, "an object", (*given)[i]);
    Value tool;
    tool["type"] = "function";
    BATON_TRY(tool["function"], read((*given)[i], key, i));
    tools.push_back(std::move(tool));
  }
  if (!tools.empty()) chat["tools"] = std::move(tools);
  return {};
}

Value chat_message(std::string_view role, Value content) {
  Value message;
  message["role"] = std::string(role);
  message["content"] = std::move(content);
  return message;
}

Value chat_content(std::vector<std::string> texts) {
  if (texts.size() == 1) return Value(std::move(texts[0]));
  Value parts = Value::array();
  for (std::string& text : texts) {
    Value part;
    part["type"] = "text";
    part["text"] = std::move(text);
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace baton
