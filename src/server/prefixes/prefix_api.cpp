/// The fields of an entry, and the `param` of errors.
#include "server/prefixes/prefix_api.h"

#include <chrono>

#include <fmt/format.h>

namespace baton {

using json::Value;

Value prefix_json(const Prefixes::Entry& entry, std::string_view model, std::int32_t block_len) {
  const PrefixDefinition& definition = entry.definition;
  Value prefix;
  prefix["id"] = definition.name;
  prefix["object"] = "prefix";
  prefix["created"] = entry.created;
  prefix["model"] = fmt::format("{}:{}", model, definition.name);
  prefix["source"] = std::string(to_string(definition.source));
  prefix["version"] = definition.version.empty() ? Value() : Value(definition.version);
  prefix["expires_at"] = nullptr;
  if (definition.ttl) prefix["expires_at"] = entry.created + definition.ttl->count();
  prefix["n_tools"] = definition.tools.size();
  prefix["n_tokens"] = entry.info.n_tokens;
  prefix["n_pinned_tokens"] = entry.info.n_pinned_tokens;
  prefix["n_pinned_blocks"] = entry.info.n_pinned_tokens / block_len;
  prefix["hits"] = entry.n_hits;
  prefix["fill_ms"] = entry.info.prefill_ms;
  prefix["loaded"] = entry.is_loaded;
  prefix["stored"] = entry.is_stored;
  if (!entry.store_error.empty()) prefix["store_error"] = entry.store_error;
  return prefix;
}

Error prefix_error(Error error, const PrefixRequest& request) {
  if (error.code == ErrorCode::invalid_data || error.code == ErrorCode::out_of_memory) error.code = ErrorCode::invalid_request;
  if (error.code == ErrorCode::invalid_request && error.param != "version" && error.param != "id" && error.param != "tools")
    error.param = request.content_field;
  return error;
}

}  // namespace baton
