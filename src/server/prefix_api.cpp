/// Reading and writing them.
#include "server/prefix_api.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "server/openai_request.h"
#include "server/openai_values.h"

namespace baton {
namespace {

using json::Value;

constexpr std::int32_t kMaxTtlSeconds = 366 * 24 * 3600;
constexpr std::size_t kMaxFieldBytes = 64;
constexpr std::string_view kFields[] = {"id", "text", "messages", "version", "ttl_seconds"};

Result<std::string> name_field(const Value& body, std::string_view key) {
  BATON_TRY(std::string name, json::convert<std::string>(*json::find(body, key), key));
  if (!is_prefix_name(name))
    return fail(ErrorCode::invalid_request, fmt::format("'{}' must be {}", key, kPrefixNameRule), std::string(key));
  return name;
}

Result<Value> messages_of(const Value* text, const Value* messages) {
  if (messages != nullptr) return parse_messages(*messages, "messages");
  BATON_TRY(std::string content, json::convert<std::string>(*text, "text"));
  if (content.empty()) return fail(ErrorCode::invalid_request, "'text' must not be empty", "text");
  return system_messages(std::move(content));
}

}  // namespace

Result<PrefixRequest> parse_prefix_request(const Value& body) {
  PrefixRequest request;
  if (openai::find_given(body, "id") == nullptr) return json::missing("id");
  BATON_TRY(request.definition.name, name_field(body, "id"));
  const Value* text = openai::find_given(body, "text");
  const Value* messages = openai::find_given(body, "messages");
  if ((text == nullptr) == (messages == nullptr))
    return fail(ErrorCode::invalid_request, "a prefix has either 'text' (a system message) or 'messages'", "text");
  request.content_field = text != nullptr ? "text" : "messages";
  BATON_TRY(request.definition.messages, messages_of(text, messages));
  if (openai::find_given(body, "version") != nullptr) {
    BATON_TRY(request.definition.version, name_field(body, "version"));
  }
  BATON_TRY(const auto ttl, openai::integer_field(body, "ttl_seconds", 1, kMaxTtlSeconds));
  if (ttl) request.definition.ttl = std::chrono::seconds(*ttl);
  for (const auto& [name, value] : body.get_ref<const Value::object_t&>())
    if (std::ranges::find(kFields, name) == std::end(kFields)) request.unknown_fields.push_back(name.substr(0, kMaxFieldBytes));
  return request;
}

Value prefix_json(const Prefixes::Entry& entry, std::string_view model, std::int32_t block_len) {
  const PrefixDefinition& definition = entry.definition;
  Value prefix;
  prefix["id"] = definition.name;
  prefix["object"] = "prefix";
  prefix["created"] = entry.created;
  prefix["model"] = fmt::format("{}:{}", model, definition.name);
  prefix["version"] = definition.version.empty() ? Value() : Value(definition.version);
  prefix["expires_at"] = nullptr;
  if (entry.expires)
    prefix["expires_at"] = std::chrono::duration_cast<std::chrono::seconds>(entry.expires->time_since_epoch()).count();
  prefix["n_tokens"] = entry.info.n_tokens;
  prefix["n_pinned_tokens"] = entry.info.n_pinned_tokens;
  prefix["n_pinned_blocks"] = entry.info.n_pinned_tokens / block_len;
  prefix["hits"] = entry.n_hits;
  prefix["fill_ms"] = entry.info.fill_ms;
  return prefix;
}

Error prefix_error(Error error, const PrefixRequest& request) {
  if (error.code == ErrorCode::invalid_data || error.code == ErrorCode::out_of_memory) error.code = ErrorCode::invalid_request;
  if (error.code == ErrorCode::invalid_request && error.param != "version") error.param = request.content_field;
  return error;
}

}  // namespace baton
