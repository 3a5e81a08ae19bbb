/// Known, refused and copied fields.
#include "server/dialects/fields.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "server/request/json_fields.h"

namespace baton {
namespace {

using json::Value;

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
  BATON_TRY_VOID(check_field_count(body));
  for (const RefusedField& field : refused) {
    const Value* value = find_given(body, field.name);
    if (value == nullptr || (!field.neutral.empty() && json::dump(*value) == field.neutral)) continue;
    return bad(field.name, "'{}' is not supported by this server; the value accepted is {}", field.name,
               field.neutral.empty() ? "null" : field.neutral);
  }
  return {};
}

void copy_same_fields(const Value& body, std::span<const SameField> same, Value& chat) {
  for (const SameField& field : same)
    if (const Value* value = find_given(body, field.name)) chat[std::string(field.chat_name)] = *value;
  for (const std::string_view name : kOwnFields)
    if (const Value* value = find_given(body, name)) chat[std::string(name)] = *value;
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

namespace {

/// What follows `field` in `param`: nothing, or the way to a member or an element; nullopt: `param` is another field's.
std::optional<std::string_view> way_inside(std::string_view param, std::string_view field) {
  if (!param.starts_with(field)) return std::nullopt;
  const std::string_view way = param.substr(field.size());
  return way.empty() || way.front() == '.' || way.front() == '[' ? std::optional(way) : std::nullopt;
}

std::string client_field(const FieldNames& names, const std::string& param) {
  for (const SameField& field : names.same)
    if (const auto way = way_inside(param, field.chat_name)) return fmt::format("{}{}", field.name, *way);
  // Other dialects have the schema in the format itself.
  for (const std::string_view format : {"response_format.json_schema", "response_format"})
    if (const auto way = way_inside(param, format)) return fmt::format("{}{}", names.format, *way);
  if (param == "messages" || param == "prompt") return std::string(names.messages);
  constexpr std::string_view kTools = "tools[";
  const auto end = param.find(']');
  std::string field = param;
  if (param.starts_with(kTools) && end != std::string::npos) {
    std::size_t index = 0;
    const auto read = std::from_chars(param.data() + kTools.size(), param.data() + end, index);
    if (read.ec == std::errc() && index < names.tools.size()) field = names.tools[index] + param.substr(end + 1);
  } else if (!param.starts_with("tool_choice.")) {
    return field;
  }
  // Other dialects have the members of a function in the tool itself.
  for (const std::string_view level : {".function.", ".custom."})
    if (const auto at = field.find(level); at != std::string::npos) field.erase(at, level.size() - 1);
  constexpr std::string_view kParameters = ".parameters";
  if (field.ends_with(kParameters)) field.replace(field.size() - kParameters.size() + 1, std::string::npos, names.parameters);
  return field;
}

}  // namespace

Error in_words_of(const FieldNames& names, Error error) {
  std::string field = client_field(names, error.param);
  if (field == error.param) return error;
  const std::string chat_name = fmt::format("'{}'", error.param);
  if (const auto at = error.message.find(chat_name); at != std::string::npos)
    error.message.replace(at, chat_name.size(), fmt::format("'{}'", field));
  error.param = std::move(field);
  return error;
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
