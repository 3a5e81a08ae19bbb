/// The endpoints under /v1/prefixes.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/attempt.h"
#include "io/json_dismantle.h"
#include "server/http/json_body.h"
#include "server/routes/routes.h"

namespace baton {
namespace {

using json::Value;

constexpr std::string_view kPrefixPath = "/v1/prefixes/";

Value version_json(const std::string& version) { return version.empty() ? Value() : Value(version); }

/// How a prefix that does not serve is shown. `model`: the name under which the model itself is served.
Value pending_json(const Prefixes::Pending& pending, std::string_view model) {
  Value prefix = {{"id", pending.name},
                  {"object", "prefix"},
                  {"created", nullptr},
                  {"model", fmt::format("{}:{}", model, pending.name)},
                  {"source", std::string(to_string(pending.source))},
                  {"version", version_json(pending.version)},
                  {"state", std::string(pending.state)}};
  if (!pending.reason.empty()) prefix["reason"] = pending.reason;
  return prefix;
}

/// Whether what is pending has become a ready prefix meanwhile.
bool is_ready(const Prefixes::Pending& pending, const Value& ready) {
  return pending.state == "computing" && ready["version"] == version_json(pending.version);
}

/// Shows what will replace a ready prefix in its entry, and another name that is pending after `list`.
void add_pending(Value& list, const std::vector<Prefixes::Pending>& all, std::string_view model) {
  for (const Prefixes::Pending& pending : all) {
    const auto ready = std::find_if(list.begin(), list.end(),
                                    [&](const Value& each) { return each["state"] == "ready" && each["id"] == pending.name; });
    if (ready == list.end()) {
      list.push_back(pending_json(pending, model));
    } else if (!is_ready(pending, *ready)) {
      const Value shown = pending_json(pending, model);
      Value& replacement = (*ready)["replacement"] = {{"version", shown["version"]}, {"state", shown["state"]}};
      if (shown.contains("reason")) replacement["reason"] = shown["reason"];
    }
  }
}

/// How a prefix is shown. `model`: the name under which the model itself is served; `block_len`: tokens a block of the KV cache.
Value prefix_json(const Prefixes::Entry& entry, std::string_view model, std::int32_t block_len) {
  const PrefixDefinition& definition = entry.definition;
  Value prefix = {{"id", definition.name},
                  {"object", "prefix"},
                  {"created", entry.created},
                  {"model", fmt::format("{}:{}", model, definition.name)},
                  {"source", std::string(to_string(definition.source))},
                  {"version", version_json(definition.version)},
                  {"state", "ready"},
                  {"expires_at", definition.ttl ? Value(entry.created + definition.ttl->count()) : Value()},
                  {"n_tools", definition.tools.size()},
                  {"n_tokens", entry.info.n_tokens},
                  {"n_pinned_tokens", entry.info.n_pinned_tokens},
                  {"n_pinned_blocks", entry.info.n_pinned_tokens / block_len},
                  {"hits", entry.n_hits},
                  {"prefill_ms", entry.info.prefill_ms},
                  {"fill_ms", entry.info.prefill_ms},  // its old name, for version 0.1 only
                  {"loaded", entry.is_loaded},
                  {"stored", entry.is_stored}};
  if (!entry.store_error.empty()) prefix["store_error"] = entry.store_error;
  return prefix;
}

/// The error for the sender of a registration; `param` is the field with the content unless the error names another.
Error prefix_error(Error error, const std::string& content_field) {
  if (error.code == ErrorCode::invalid_data || error.code == ErrorCode::out_of_memory) error.code = ErrorCode::invalid_request;
  if (error.code == ErrorCode::invalid_request && error.param != "version" && error.param != "id" && error.param != "tools")
    error.param = content_field;
  return error;
}

}  // namespace

Routes::Response Routes::prefixes(const Call&) {
  const std::int32_t block_len = context_.engine.info().block_len;
  const std::vector<Prefixes::Pending> pending = context_.prefixes.pending();
  Value list = Value::array();
  context_.prefixes.for_each(
      [&](const Prefixes::Entry& entry) { list.push_back(prefix_json(entry, context_.model.names[0], block_len)); });
  add_pending(list, pending, context_.model.names[0]);
  return json_response({{"object", "list"}, {"data", std::move(list)}});
}

Routes::Response Routes::prefix(const Call& call) {
  const std::string name = percent_decoded(std::string_view(call.request.path).substr(kPrefixPath.size()));
  std::vector<Prefixes::Pending> pending = context_.prefixes.pending();
  std::erase_if(pending, [&](const Prefixes::Pending& each) { return each.name != name; });
  Value list = Value::array();
  if (auto shown = show_prefix(name)) list.push_back(std::move(*shown));
  add_pending(list, pending, context_.model.names[0]);
  if (!list.empty()) return json_response(list.front());
  return error_response(context_.prefixes.not_found(name, "id"));
}

std::optional<Value> Routes::show_prefix(std::string_view name) const {
  std::optional<Value> shown;
  context_.prefixes.for_each([&](const Prefixes::Entry& entry) {
    if (entry.definition.name == name) shown = prefix_json(entry, context_.model.names[0], context_.engine.info().block_len);
  });
  return shown;
}

Routes::Response Routes::register_prefix(const Call& call) {
  auto body = body_of(call);
  if (!body) return error_response(body.error());
  const json::Dismantling end_of_body(*body);
  auto asked = parse_prefix_request(*body);
  if (!asked) return error_response(asked.error());
  log_unknown_fields(asked->unknown_fields);
  asked->definition.source = PrefixSource::api;
  if (call.caller.account != nullptr) asked->definition.owner = call.caller.account->name();
  asked->definition.max_pinned_blocks = call.caller.max_pinned_blocks;
  if (auto wanted = context_.prefixes.want(call.exchange, std::move(*asked)); !wanted)
    return logged_error_response(wanted.error());
  // A client that left before its registration was there has not been found.
  if (!context_.dispatcher.is_open(call.exchange)) context_.prefixes.leave(call.exchange);
  return std::nullopt;
}

void Routes::answer_registration(const Prefixes::Asked& asked, const Error* error) {
  const auto response = [&] {
    if (error != nullptr) return logged_error_response(prefix_error(*error, asked.content_field));
    const auto shown = show_prefix(asked.name);
    // Another client may have removed it since.
    return shown ? json_response(*shown)
                 : error_response(400, fmt::format("prefix {} was removed before its registration was answered", asked.name),
                                  "id");
  };
  const bool had_memory = error == nullptr || !error->message.empty();
  if (!had_memory || !attempt([&] { context_.dispatcher.respond(asked.exchange, response()); }))
    refuse_for_memory(asked.exchange);
}

Routes::Response Routes::remove_prefix(const Call& call) {
  const std::string name = percent_decoded(std::string_view(call.request.path).substr(kPrefixPath.size()));
  if (const auto removed = context_.prefixes.remove(name, PrefixSource::api); !removed) return error_response(removed.error());
  return json_response({{"id", name}, {"object", "prefix"}, {"deleted", true}});
}

}  // namespace baton
