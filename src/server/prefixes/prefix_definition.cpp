/// Parsing of prefix definitions: objects, lists and texts.
#include "server/prefixes/prefix_definition.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "core/one_line.h"
#include "io/file.h"
#include "server/limits/prefix_name.h"
#include "server/request/chat_history.h"
#include "server/request/json_fields.h"
#include "server/request/tool_fields.h"
#include "text/split/unicode.h"

namespace baton {
namespace {

using json::Value;

constexpr std::int32_t kMaxTtlSeconds = 366 * 24 * 3600;
constexpr std::size_t kMaxFieldBytes = 64;
constexpr std::string_view kFields[] = {"id", "text", "messages", "tokens", "tools", "version", "ttl_seconds"};

Result<std::string> name_field(const Value& body, std::string_view key) {
  BATON_TRY(std::string name, json::convert<std::string>(*json::find(body, key), key));
  if (!is_prefix_name(name)) return bad_field(key, "must be {}", kPrefixNameRule);
  return name;
}

/// The messages with the fields that chat templates read; the names of other fields are added to `unknown`.
Value known_fields_of(const Value& messages, std::vector<std::string>& unknown) {
  constexpr std::string_view kRead[] = {"role",      "content",           "name",     "tool_calls", "tool_call_id",
                                        "reasoning", "reasoning_content", "thinking", "tool_plan",  "refusal"};
  constexpr std::size_t kMaxNamed = 20;
  Value kept = Value::array();
  for (const Value& message : messages) {
    Value& one = kept.emplace_back(Value::object());
    for (const auto& [field, value] : message.get_ref<const Value::object_t&>()) {
      if (std::ranges::find(kRead, field) != std::end(kRead))
        one[field] = value;
      else if (const std::string name = "messages." + field.substr(0, kMaxFieldBytes);
               unknown.size() < kMaxNamed && std::ranges::find(unknown, name) == unknown.end())
        unknown.push_back(name);
    }
  }
  return kept;
}

Result<Value> parse_tools(const Value& body) {
  const Value* tools = find_given(body, "tools");
  if (tools == nullptr) return Value();
  if (find_given(body, "tokens") != nullptr) return bad_field("tools", "needs a 'text' or 'messages': tokens are not rendered");
  Value alone;
  alone["tools"] = *tools;
  BATON_TRY(ToolFields fields, parse_tool_fields(alone));
  return std::move(fields.definitions);
}

Result<void> parse_content(const Value& body, PrefixRequest& request) {
  PrefixDefinition& definition = request.definition;
  BATON_TRY(definition.tools, parse_tools(body));
  for (const std::string_view field : {"text", "messages", "tokens"}) {
    const Value* value = find_given(body, field);
    if (value == nullptr) continue;
    if (!request.content_field.empty()) return bad("text", "a prefix has either '{}' or '{}'", request.content_field, field);
    request.content_field = field;
    if (field == "messages") {
      BATON_TRY(const Value messages, parse_messages(*value, field));
      definition.messages = known_fields_of(messages, request.unknown_fields);
    } else if (field == "text") {
      BATON_TRY(std::string content, json::convert<std::string>(*value, field));
      if (content.empty()) return bad(field, "'text' must not be empty");
      definition.messages = system_messages(std::move(content));
    } else {
      BATON_TRY(definition.tokens, parse_token_ids(*value, field, std::numeric_limits<TokenId>::max()));
      if (definition.tokens.empty()) return bad(field, "'tokens' must hold at least one token id");
    }
  }
  if (!request.content_field.empty()) return {};
  if (definition.tools.is_null())
    return bad("text", "a prefix has a 'text' (a system message), 'messages', 'tools' or 'tokens'");
  request.content_field = "tools";
  definition.messages = Value::array();
  return {};
}

/// Parses all fields except the id.
Result<PrefixRequest> parse_fields(const Value& body, std::string name) {
  PrefixRequest request;
  request.definition.name = std::move(name);
  BATON_TRY_VOID(parse_content(body, request));
  if (find_given(body, "version") != nullptr) {
    BATON_TRY(request.definition.version, name_field(body, "version"));
  }
  BATON_TRY(const auto ttl, integer_field(body, "ttl_seconds", 1, kMaxTtlSeconds));
  if (ttl) request.definition.ttl = std::chrono::seconds(*ttl);
  for (const auto& [field, value] : body.get_ref<const Value::object_t&>())
    if (std::ranges::find(kFields, field) == std::end(kFields))
      request.unknown_fields.push_back(field.substr(0, kMaxFieldBytes));
  return request;
}

Result<PrefixDefinition> parse_json_file(std::string_view name, const std::filesystem::path& file, std::string_view bytes) {
  BATON_TRY(const Value body, json::parse(bytes, file.filename().string()));
  if (body.is_array()) {
    BATON_TRY(Value messages, parse_messages(body, "messages"));
    return PrefixDefinition{std::string(name), std::move(messages)};
  }
  if (!body.is_object()) return bad({}, "must hold an object or a list of messages, not {}", json::describe_type(body));
  if (find_given(body, "id") != nullptr) {
    BATON_TRY(const std::string id, name_field(body, "id"));
    if (id != name) return bad_field("id", "is '{}', and the prefix is called '{}'", id, name);
  }
  BATON_TRY(PrefixRequest request, parse_fields(body, std::string(name)));
  for (const std::string& field : request.unknown_fields)
    log::info("event=unknown_field_ignored file={} field={}", log_value(file.string()), json::dump(Value(field)));
  return std::move(request.definition);
}

Result<PrefixSource> source_named(std::string_view name) {
  for (const PrefixSource source : {PrefixSource::flag, PrefixSource::api, PrefixSource::folder})
    if (to_string(source) == name) return source;
  return fail(ErrorCode::invalid_data, fmt::format("it names the source '{}', which does not exist", name));
}

}  // namespace

std::string_view to_string(PrefixSource source) {
  switch (source) {
    case PrefixSource::flag: return "flag";
    case PrefixSource::api: return "api";
    case PrefixSource::folder: return "folder";
    case PrefixSource::mark: return "mark";
  }
  return "unknown";
}

std::size_t content_bytes(const PrefixDefinition& definition) {
  const std::size_t n_tool_bytes = definition.tools.is_null() ? 0 : json::dump(definition.tools).size();
  return json::dump(definition.messages).size() + n_tool_bytes + definition.tokens.size() * sizeof(TokenId);
}

json::Value system_messages(std::string text) { return Value::array({{{"role", "system"}, {"content", std::move(text)}}}); }

std::string prefix_text(const json::Value& messages) {
  std::string text;
  const auto add = [&](const Value* piece) {
    if (piece == nullptr || !piece->is_string()) return;
    if (!text.empty()) text += '\n';
    text += piece->get_ref<const std::string&>();
  };
  for (const Value& message : messages) {
    const Value* content = json::find(message, "content");
    add(content);
    if (content == nullptr || !content->is_array()) continue;
    for (const Value& part : *content) add(json::find(part, "text"));
  }
  return text;
}

Result<PrefixRequest> parse_prefix_request(const json::Value& body) {
  if (find_given(body, "id") == nullptr) return json::missing("id");
  BATON_TRY(std::string name, name_field(body, "id"));
  return parse_fields(body, std::move(name));
}

Result<PrefixDefinition> parse_prefix_file(std::string_view name, const std::filesystem::path& file, std::string bytes) {
  if (!is_prefix_name(name))
    return fail(ErrorCode::invalid_request, fmt::format("the prefix name '{}' must be {}", name, kPrefixNameRule));
  if (bytes.empty()) return fail(ErrorCode::invalid_data, fmt::format("{} is empty; a prefix is a text", file.string()));
  if (!unicode::is_valid_utf8(bytes)) return fail(ErrorCode::invalid_data, fmt::format("{} is not UTF-8 text", file.string()));
  if (file.extension() != ".json") {
    PrefixDefinition definition{std::string(name), system_messages(std::move(bytes))};
    definition.file = file.string();
    return definition;
  }
  auto definition = parse_json_file(name, file, bytes);
  if (!definition) return fail(ErrorCode::invalid_data, fmt::format("{}: {}", file.string(), definition.error().message));
  definition->file = file.string();
  return definition;
}

Result<std::string> read_prefix_bytes(const std::filesystem::path& file) {
  BATON_TRY(std::string bytes, read_file(file));
  if (bytes.size() <= kMaxPrefixFileBytes) return bytes;
  return fail(ErrorCode::too_large,
              fmt::format("{} has {} bytes; a prefix's file may have {}", file.string(), bytes.size(), kMaxPrefixFileBytes));
}

Result<PrefixDefinition> read_prefix(std::string_view name, const std::filesystem::path& file) {
  if (!is_prefix_name(name)) return parse_prefix_file(name, file, {});
  BATON_TRY(std::string bytes, read_prefix_bytes(file));
  return parse_prefix_file(name, file, std::move(bytes));
}

std::string metadata_of(const PrefixDefinition& definition, std::int64_t created) {
  Value body;
  body["source"] = std::string(to_string(definition.source));
  body["version"] = definition.version;
  if (definition.source != PrefixSource::api) return json::dump(body);
  body["created"] = created;
  body["owner"] = definition.owner;
  if (definition.ttl) body["ttl_seconds"] = static_cast<std::int64_t>(definition.ttl->count());
  if (definition.tokens.empty())
    body["messages"] = definition.messages;
  else
    body["tokens"] = definition.tokens;
  if (!definition.tools.is_null()) body["tools"] = definition.tools;
  return json::dump(body);
}

Result<PrefixDefinition> definition_of(std::string_view name, const std::string& metadata) {
  BATON_TRY(const Value body, json::parse(metadata, "its description"));
  BATON_TRY(const auto source, json::get<std::string>(body, "source"));
  PrefixDefinition definition{std::string(name), nullptr};
  BATON_TRY(definition.source, source_named(source));
  BATON_TRY(definition.version, json::get<std::string>(body, "version"));
  if (definition.source != PrefixSource::api) return definition;
  BATON_TRY(definition.created, json::get<std::int64_t>(body, "created"));
  BATON_TRY(definition.owner, json::get<std::string>(body, "owner"));
  if (body.contains("ttl_seconds")) {
    BATON_TRY(const auto ttl, json::get<std::int64_t>(body, "ttl_seconds"));
    definition.ttl = std::chrono::seconds(ttl);
  }
  if (body.contains("tokens")) {
    BATON_TRY(definition.tokens, json::get<std::vector<TokenId>>(body, "tokens"));
  } else {
    if (!body.contains("messages") || !body.at("messages").is_array())
      return fail(ErrorCode::invalid_data, "it has neither messages nor tokens");
    definition.messages = body.at("messages");
  }
  if (body.contains("tools")) definition.tools = body.at("tools");
  return definition;
}

}  // namespace baton
