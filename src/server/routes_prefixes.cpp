/// The endpoints under /v1/prefixes: handlers of Routes.
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/post.hpp>

#include "server/api_error.h"
#include "server/json_body.h"
#include "server/prefix_api.h"
#include "server/routes.h"

namespace baton {
namespace {

using json::Value;

constexpr std::string_view kPrefixPath = "/v1/prefixes/";

}  // namespace

Routes::Response Routes::prefixes(const Call&) {
  const std::int32_t block_len = context_.engine.info().block_len;
  Value list = Value::array();
  context_.prefixes.for_each(
      [&](const Prefixes::Entry& entry) { list.push_back(prefix_json(entry, context_.model.names[0], block_len)); });
  Value body;
  body["object"] = "list";
  body["data"] = std::move(list);
  return json_response(body);
}

Routes::Response Routes::prefix(const Call& call) {
  const std::string name = percent_decoded(std::string_view(call.request.path).substr(kPrefixPath.size()));
  if (const auto shown = show_prefix(name)) return json_response(*shown);
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
  const auto body = parse_body(call.request, context_.budgets.values_per_body);
  if (!body) return error_response(body.error());
  auto asked = parse_prefix_request(*body);
  if (!asked) return error_response(asked.error());
  log_unknown_fields(asked->unknown_fields);
  asked->definition.source = PrefixSource::api;
  if (call.caller.account != nullptr) asked->definition.owner = call.caller.account->name();
  asked->definition.max_pinned_blocks = call.caller.max_pinned_blocks;
  context_.prefixes.make_way(context_.engine, asked->definition);
  boost::asio::post(prefix_thread_, [this, exchange = call.exchange, asked = std::move(*asked)] {
    context_.service.respond(exchange, add_prefix(asked));
  });
  return std::nullopt;
}

HttpResponse Routes::add_prefix(const PrefixRequest& asked) {
  const std::string& name = asked.definition.name;
  if (auto added = context_.prefixes.add(context_.model, context_.engine, asked.definition); !added)
    return logged_error_response(prefix_error(std::move(added.error()), asked));
  expire_prefixes();
  if (const auto shown = show_prefix(name)) return json_response(*shown);
  return error_response(context_.prefixes.not_found(name, "id"));
}

void Routes::watch_lifetimes() {
  boost::asio::post(prefix_thread_, [this] { expire_prefixes(); });
}

Routes::Response Routes::remove_prefix(const Call& call) {
  const std::string name = percent_decoded(std::string_view(call.request.path).substr(kPrefixPath.size()));
  if (const auto removed = context_.prefixes.remove(context_.engine, name, PrefixSource::api); !removed)
    return error_response(removed.error());
  Value body;
  body["id"] = name;
  body["object"] = "prefix";
  body["deleted"] = true;
  return json_response(body);
}

/// Removes expired prefixes, and runs again when the next one expires.
void Routes::expire_prefixes() {
  const auto now = Prefixes::Clock::now();
  const auto next = context_.prefixes.remove_expired(context_.engine, now);
  if (!next) return;
  next_expiry_.expires_after(std::chrono::ceil<std::chrono::milliseconds>(*next - now));
  next_expiry_.async_wait([this](const boost::system::error_code& error) {
    if (!error) expire_prefixes();
  });
}

}  // namespace baton
