/// The endpoints of the Responses dialect: handlers of Routes.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "io/json_dismantle.h"
#include "io/json_parse.h"
#include "server/dialects/responses/answer.h"
#include "server/dialects/responses/dialect.h"
#include "server/dialects/responses/items.h"
#include "server/dialects/responses/request.h"
#include "server/http/error_body.h"
#include "server/http/json_body.h"
#include "server/request/stamp.h"
#include "server/routes/routes.h"

namespace baton {
namespace {

using json::Value;
using Clock = ResponseStore::Clock;

constexpr std::string_view kInputItems = "/input_items";
constexpr std::size_t kDefaultItems = 20;
constexpr std::size_t kMostItems = 100;

/// Whose responses a caller sees.
std::string owner_of(const Caller& caller) { return caller.account == nullptr ? std::string() : caller.account->name(); }

Error no_such_response(std::string_view id, std::string_view param) {
  return {ErrorCode::not_found,
          fmt::format("Response with id '{}' not found: it was not stored, was dropped for newer ones, or is another key's",
                      id.substr(0, 100)),
          std::string(param)};
}

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

/// One page of a list of items.
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

/// A sampling parameter as clients write it.
double shown(float number) { return std::round(static_cast<double>(number) * 1e6) / 1e6; }

}  // namespace

/// The items of the conversation that a request continues: its input and its output. Empty if it continues none. nullopt: with
/// what is stored it is long work, and goes on as such.
Result<std::optional<Value>> Routes::earlier_items(const Call& call, const Value& body) {
  BATON_TRY(const auto previous, previous_response_of(body));
  if (!previous) return std::optional<Value>(Value::array());
  BATON_TRY(const auto salt, json::get_optional<std::string>(body, "cache_salt"));
  const auto stored = responses_.find(owner_of(call.caller), *previous, Clock::now());
  // Under another salt the conversation is another tenant's.
  if (stored == nullptr || stored->salt != cache_salt_of(call.caller, salt.value_or("")))
    return tl::unexpected<Error>(no_such_response(*previous, "previous_response_id"));
  const std::size_t n_bytes = call.request.body.size() + stored->items.size() + stored->response.size();
  BATON_TRY(const bool goes_on, goes_on_as_long_work(call, n_bytes));
  if (goes_on) return std::optional<Value>();
  const IsCancelled is_cancelled = is_unwanted(call.exchange);
  BATON_TRY(Value items, json::parse_cancellable(stored->items, "stored items", is_cancelled));
  BATON_TRY(const Value response, json::parse_cancellable(stored->response, "a stored response", is_cancelled));
  for (const Value& item : response["output"]) items.push_back(item);
  return std::optional<Value>(std::move(items));
}

Result<void> Routes::begin_response(const Call& call) {
  BATON_TRY(Value body, body_of(call));
  const json::Dismantling end_of_body(body);
  BATON_TRY(std::optional<Value> earlier, earlier_items(call, body));
  if (!earlier) return {};
  const json::Dismantling end_of_earlier(*earlier);
  BATON_TRY(ResponsesRequest request, read_responses_request(body, *earlier));
  const json::Dismantling end_of_chat(request.chat), end_of_items(request.items);
  log_unknown_fields(request.unknown_fields);
  // Clients ask for the response by its id, which nobody else may guess.
  request.chat["request_id"] = random_id();
  auto chat = parse_chat_request(request.chat, context_.model.defaults, limits());
  if (!chat) return tl::unexpected<Error>(responses_error(std::move(chat.error())));
  const std::string items = json::dump(request.items);
  ResponsePlan plan{std::move(request.repeated)};
  plan.bytes = context_.budgets.requests.share();
  if (!plan.bytes.grow(static_cast<std::int64_t>(items.size() + json::dump(plan.repeated).size())))
    return fail(ErrorCode::unavailable,
                "requests that wait or run take the memory that this server keeps for them: try again later");
  plan.repeated["temperature"] = shown(chat->generation.sampling.temperature);
  plan.repeated["top_p"] = shown(chat->generation.sampling.top_p);
  if (request.is_stored) {
    StoredResponse stored{{}, items, cache_salt_of(call.caller, chat->generation.cache_salt)};
    plan.keep = [this, owner = owner_of(call.caller), id = std::string(kResponses.ids) + *chat->generation.request_id,
                 stored = std::move(stored)](std::string response) mutable {
      stored.response = std::move(response);
      responses_.put(owner, id, std::move(stored), Clock::now());
    };
  }
  const auto writer_of = [&plan](const Target&, const Request&) -> MakeAnswerWriter {
    return [&plan](const AnswerContent& content, const Tokenizer& tokenizer) {
      return std::make_unique<ResponsesWriter>(content, tokenizer, std::move(plan));
    };
  };
  return begin_conversation(call, std::move(*chat), kResponses.ids, writer_of);
}

Routes::Response Routes::responses(const Call& call) { return begin(call, &Routes::begin_response); }

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
      json::parse_cancellable(stored->items, "stored items", is_unwanted(call.exchange)).and_then([&](const Value& items) {
        return page_of_items(items, call.request.query);
      });
  return page ? json_response(*page) : error_response(page.error());
}

Routes::Response Routes::remove_response(const Call& call) {
  const std::string_view id = std::string_view(call.request.path).substr(kResponsePath.size());
  if (!responses_.remove(owner_of(call.caller), id, Clock::now())) return error_response(no_such_response(id, "response_id"));
  Value body;
  body["id"] = std::string(id);
  body["object"] = "response";
  body["deleted"] = true;
  return json_response(body);
}

/// What may be posted below the responses: a count of tokens. Responses do not run in the background, so none is cancelled.
Routes::Response Routes::count_response_tokens(const Call& call) {
  const auto count = [&]() -> Result<std::optional<Value>> {
    if (call.request.path != kResponses.count_path)
      return fail(ErrorCode::unsupported,
                  fmt::format("this server has no {}: it does not run responses in the background, and compacts no context",
                              call.request.path.substr(0, 100)));
    BATON_TRY(Value body, body_of(call));
    const json::Dismantling end_of_body(body);
    BATON_TRY(std::optional<Value> earlier, earlier_items(call, body));
    if (!earlier) return std::optional<Value>();
    const json::Dismantling end_of_earlier(*earlier);
    BATON_TRY(const ResponsesRequest request, read_responses_request(body, *earlier));
    log_unknown_fields(request.unknown_fields);
    auto chat = parse_chat_request(request.chat, context_.model.defaults, limits());
    if (!chat) return tl::unexpected<Error>(responses_error(std::move(chat.error())));
    BATON_TRY(const Target target, resolve_target(context_.model, context_.prefixes, chat->generation));
    BATON_TRY(const TokenizedPrompt prompt, tokenize_chat(context_.model, target.prefix, *chat, is_unwanted(call.exchange)));
    Value counted;
    counted["object"] = "response.input_tokens";
    counted["input_tokens"] = prompt.tokens.size();
    return std::optional<Value>(std::move(counted));
  };
  const auto counted = count();
  if (!counted) return logged_error_response(counted.error());
  return *counted ? Response(json_response(**counted)) : std::nullopt;
}

}  // namespace baton
