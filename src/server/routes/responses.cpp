/// The endpoints of stored responses: handlers of Routes.
#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "io/json_parse.h"
#include "server/dialects/responses/dialect.h"
#include "server/dialects/responses/store.h"
#include "server/http/json_body.h"
#include "server/routes/routes.h"

namespace baton {
namespace {

using json::Value;
using Clock = ResponseStore::Clock;

constexpr std::string_view kInputItems = "/input_items";
constexpr std::size_t kDefaultItems = 20;
constexpr std::size_t kMostItems = 100;

/// The value of a parameter of a query; empty if it is not given.
std::string query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('='))
      return percent_decoded(pair.substr(name.size() + 1));
  }
  return {};
}

Result<Value> page_of_items(const Value& items, std::string_view query) {
  const std::string order = query_value(query, "order");
  if (!order.empty() && order != "asc" && order != "desc")
    return fail(ErrorCode::invalid_request, "'order' must be \"asc\" or \"desc\"", "order");
  const std::string limit_text = query_value(query, "limit");
  std::size_t limit = kDefaultItems;
  if (!limit_text.empty()) {
    const auto given = json::parse(limit_text, "'limit'");
    if (!given) return fail(ErrorCode::invalid_request, "'limit' must be an integer", "limit");
    BATON_TRY(const std::int64_t number, json::to_int64(*given, "limit", 1, static_cast<std::int64_t>(kMostItems)));
    limit = static_cast<std::size_t>(number);
  }
  std::vector<const Value*> ordered;
  for (const Value& item : items) ordered.push_back(&item);
  if (order != "asc") std::ranges::reverse(ordered);
  std::size_t begin = 0;
  if (const std::string after = query_value(query, "after"); !after.empty()) {
    const auto found = std::ranges::find_if(ordered, [&](const Value* item) { return json::is_text((*item)["id"], after); });
    if (found == ordered.end()) return fail(ErrorCode::invalid_request, "'after' is the id of no item", "after");
    begin = static_cast<std::size_t>(found - ordered.begin()) + 1;
  }
  const std::size_t end = std::min(ordered.size(), begin + limit);
  Value page;
  page["object"] = "list";
  page["data"] = Value::array();
  for (std::size_t i = begin; i < end; ++i) page["data"].push_back(*ordered[i]);
  page["first_id"] = begin == end ? Value() : (*ordered[begin])["id"];
  page["last_id"] = begin == end ? Value() : (*ordered[end - 1])["id"];
  page["has_more"] = end < ordered.size();
  return page;
}

}  // namespace

Routes::Response Routes::stored_response(const Call& call) {
  std::string_view id = std::string_view(call.request.path).substr(kResponsePath.size());
  const bool wants_items = id.ends_with(kInputItems);
  if (wants_items) id.remove_suffix(kInputItems.size());
  const auto stored = responses_.find(owner_of(call.caller), id, Clock::now());
  if (stored == nullptr) return error_response(no_such_response(id, "response_id"));
  if (!wants_items) {
    if (query_value(call.request.query, "stream") == "true")
      return error_response(400, "a stored response is not streamed again; leave 'stream' out", "stream");
    return HttpResponse{200, {{"Content-Type", "application/json"}}, stored->response};
  }
  const auto goes_on = goes_on_as_long_work(call, stored->items.size());
  if (!goes_on) return error_response(goes_on.error());
  if (*goes_on) return std::nullopt;
  const auto page =
      json::parse_exact(stored->items, "stored items", is_unwanted(call.exchange)).and_then([&](const Value& items) {
        return page_of_items(items, call.request.query);
      });
  return page ? json_response(*page) : error_response(page.error());
}

Routes::Response Routes::remove_response(const Call& call) {
  const std::string_view id = std::string_view(call.request.path).substr(kResponsePath.size());
  if (!responses_.remove(owner_of(call.caller), id, Clock::now())) return error_response(no_such_response(id, "response_id"));
  return json_response({{"id", id}, {"object", "response"}, {"deleted", true}});
}

/// What may be posted below the responses: a count of tokens. Responses do not run in the background, so none is cancelled.
Routes::Response Routes::count_response_tokens(const Call& call) {
  if (call.request.path == kResponses.count_path) return count_tokens(call);
  return logged_error_response(
      {ErrorCode::unsupported,
       fmt::format("this server has no {}: it does not run responses in the background, and compacts no context",
                   call.request.path.substr(0, 100))});
}

}  // namespace baton
