/// The endpoints under /v1/prefixes, and the prompts that clients asked to keep in the cache: what the thread of prefixes does.
#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/limits/insist.h"
#include "core/log.h"
#include "io/json_dismantle.h"
#include "server/http/error_body.h"
#include "server/http/json_body.h"
#include "server/routes/routes.h"

namespace baton {
namespace {

using json::Value;

constexpr std::string_view kPrefixPath = "/v1/prefixes/";
constexpr std::string_view kNoPrefix =
    "event=prefixes_out_of_memory effect=\"the program ends: there is no memory to register or end prefixes\"";
constexpr std::size_t kMaxWaitingPins = 64;
constexpr std::string_view kNoMorePrefixes = "the server is shutting down and takes no new prefixes";

/// How a prefix is shown. `model`: the name under which the model itself is served; `block_len`: tokens a block of the KV cache.
Value prefix_json(const Prefixes::Entry& entry, std::string_view model, std::int32_t block_len) {
  const PrefixDefinition& definition = entry.definition;
  Value prefix = {{"id", definition.name},
                  {"object", "prefix"},
                  {"created", entry.created},
                  {"model", fmt::format("{}:{}", model, definition.name)},
                  {"source", std::string(to_string(definition.source))},
                  {"version", definition.version.empty() ? Value() : Value(definition.version)},
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

/// The error for the sender of `request` whose prefix was not added; `param` is the field with the content unless the
/// error names another.
Error prefix_error(Error error, const PrefixRequest& request) {
  if (error.code == ErrorCode::invalid_data || error.code == ErrorCode::out_of_memory) error.code = ErrorCode::invalid_request;
  if (error.code == ErrorCode::invalid_request && error.param != "version" && error.param != "id" && error.param != "tools")
    error.param = request.content_field;
  return error;
}

}  // namespace

Routes::Response Routes::prefixes(const Call&) {
  const std::int32_t block_len = context_.engine.info().block_len;
  Value list = Value::array();
  context_.prefixes.for_each(
      [&](const Prefixes::Entry& entry) { list.push_back(prefix_json(entry, context_.model.names[0], block_len)); });
  return json_response({{"object", "list"}, {"data", std::move(list)}});
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
  auto body = body_of(call);
  if (!body) return error_response(body.error());
  const json::Dismantling end_of_body(*body);
  auto asked = parse_prefix_request(*body);
  if (!asked) return error_response(asked.error());
  log_unknown_fields(asked->unknown_fields);
  asked->definition.source = PrefixSource::api;
  if (call.caller.account != nullptr) asked->definition.owner = call.caller.account->name();
  asked->definition.max_pinned_blocks = call.caller.max_pinned_blocks;
  const PrefixDefinition newer{asked->definition.name, nullptr, asked->definition.version};
  if (auto queued = prefix_queue_.push(call.exchange, std::move(*asked)); !queued) return logged_error_response(queued.error());
  try {
    // A client that left before its registration was there has not been found in the queue.
    if (!context_.dispatcher.is_open(call.exchange)) client_left(call.exchange);
    context_.prefixes.make_way(newer);
    prefix_thread_.post([this] { add_next_prefix(); });
  } catch (const std::bad_alloc&) {
    if (prefix_queue_.take_back(call.exchange)) throw;  // otherwise it was begun for a removed one, and is answered
  }
  return std::nullopt;
}

/// Computes the prefix that waits longest. There is one call for each registration, also for removed ones.
void Routes::add_next_prefix() {
  PrefixQueue::Registration* const next = prefix_queue_.begin();
  if (next == nullptr) return;
  const ExchangeId exchange = next->exchange;
  try {
    HttpResponse response = context_.engine.is_draining() ? error_response(503, kNoMorePrefixes, {}) : add_prefix(*next);
    prefix_queue_.end();
    context_.dispatcher.respond(exchange, std::move(response));
  } catch (const std::bad_alloc&) {
    prefix_place_.end();
    prefix_queue_.end();
    refuse_for_memory(exchange);
  }
}

void Routes::client_left(ExchangeId exchange) { prefix_queue_.leave(exchange); }

HttpResponse Routes::add_prefix(PrefixQueue::Registration& asked) {
  prefix_place_.begin();
  auto added = context_.prefixes.add_within(options_.prefix_limits, context_.model, context_.engine,
                                            std::move(asked.request.definition), asked.cancel, [this] { prefix_place_.end(); });
  prefix_place_.end();
  if (!added) return logged_error_response(prefix_error(std::move(added.error()), asked.request));
  insist(kNoPrefix, [this] { end_expired(); });
  if (const auto shown = show_prefix(asked.name)) return json_response(*shown);
  return error_response(context_.prefixes.not_found(asked.name, "id"));
}

void Routes::run_with_prefixes(std::function<void()> task) { prefix_thread_.post(std::move(task)); }

void Routes::watch_lifetimes() {
  prefix_thread_.post([this] { insist(kNoPrefix, [this] { end_expired(); }); });
}

Routes::Response Routes::remove_prefix(const Call& call) {
  const std::string name = percent_decoded(std::string_view(call.request.path).substr(kPrefixPath.size()));
  const std::vector<ExchangeId> waiting = prefix_queue_.remove(name);
  for (const ExchangeId exchange : waiting)
    context_.dispatcher.respond(exchange,
                                error_response(400, fmt::format("prefix {} was removed before it was computed", name), "id"));
  const auto removed = context_.prefixes.remove(context_.engine, name, PrefixSource::api);
  if (!removed && (waiting.empty() || removed.error().code != ErrorCode::not_found)) return error_response(removed.error());
  return json_response({{"id", name}, {"object", "prefix"}, {"deleted", true}});
}

/// Pins prompts that are in the cache. While many wait, the next ones are not kept.
void Routes::keep_marked(const std::vector<CachePinRequest>& asked) {
  if (!context_.engine.info().enable_prefix_caching) return;
  {
    const MutexLock lock(mutex_);
    if (n_waiting_pins_ + asked.size() > kMaxWaitingPins) return;
    n_waiting_pins_ += asked.size();
  }
  const auto end_wait = [this](std::size_t n) {
    const MutexLock lock(mutex_);
    n_waiting_pins_ -= n;
  };
  try {
    prefix_thread_.post(
        [this, asked = std::vector<CachePinRequest>(asked), end_wait] {  // not const: moving it must not copy it
          try {
            for (const CachePinRequest& one : asked) cache_pins_.keep(context_.engine, one, CachePins::Clock::now());
          } catch (const std::bad_alloc&) {
            log::warning("event=out_of_memory effect=\"a marked prompt is not kept\"");
          }
          end_wait(asked.size());
          insist(kNoPrefix, [this] { end_expired(); });
        });
  } catch (const std::bad_alloc&) {
    end_wait(asked.size());
    throw;
  }
}

/// Removes expired prefixes, ends pins whose time is over, and runs again when the next one's is.
void Routes::end_expired() {
  const ThreadWatch::Work work(prefix_place_);
  const auto now = Prefixes::Clock::now();
  const auto next_prefix = context_.prefixes.remove_expired(context_.engine, now);
  const auto next_pin = cache_pins_.remove_expired(context_.engine, now);
  if (!next_prefix && !next_pin) return;
  const auto next = std::min(next_prefix.value_or(next_pin.value_or(now)), next_pin.value_or(next_prefix.value_or(now)));
  next_expiry_.expires_after(std::chrono::ceil<std::chrono::milliseconds>(next - now));
  next_expiry_.async_wait([this](const boost::system::error_code& error) {
    if (!error) insist(kNoPrefix, [this] { end_expired(); });
  });
}

}  // namespace baton
