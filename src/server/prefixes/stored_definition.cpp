/// Metadata as a JSON object.
#include "server/prefixes/stored_definition.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "io/json.h"

namespace baton {
namespace {

using json::Value;

Result<PrefixSource> source_named(std::string_view name) {
  for (const PrefixSource source : {PrefixSource::flag, PrefixSource::api, PrefixSource::folder})
    if (to_string(source) == name) return source;
  return fail(ErrorCode::invalid_data, fmt::format("it names the source '{}', which does not exist", name));
}

}  // namespace

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
