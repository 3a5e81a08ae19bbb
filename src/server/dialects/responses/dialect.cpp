/// Requests of the Responses dialect as calls for a conversation: what they continue, and what is stored of them.
#include "server/dialects/responses/dialect.h"

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "io/json_dismantle.h"
#include "io/json_parse.h"
#include "server/dialects/responses/answer.h"
#include "server/dialects/responses/items.h"
#include "server/dialects/responses/request.h"
#include "server/dialects/responses/store.h"
#include "server/request/chat_dismantle.h"
#include "server/request/stamp.h"

namespace baton {
namespace {

using json::Value;
using Clock = ResponseStore::Clock;

/// A sampling parameter as clients write it.
double shown(float number) { return std::round(static_cast<double>(number) * 1e6) / 1e6; }

/// The items of the conversation that a request continues: its input and its output. Empty if it continues none. nullopt: with
/// what is stored it is long work, and continues as such.
Result<std::optional<Value>> earlier_items(const Value& body, const ReadContext& context) {
  BATON_TRY(const auto previous, previous_response_of(body));
  if (!previous) return std::optional<Value>(Value::array());
  BATON_TRY(const auto salt, json::get_optional<std::string>(body, "cache_salt"));
  const auto stored = context.responses.find(owner_of(context.caller), *previous, Clock::now());
  // Under another salt the conversation is another tenant's.
  if (stored == nullptr || stored->salt != cache_salt_of(context.caller, salt.value_or("")))
    return tl::unexpected<Error>(no_such_response(*previous, "previous_response_id"));
  const std::size_t n_bytes = context.n_body_bytes + stored->items.size() + stored->response.size();
  BATON_TRY(const bool goes_on, context.goes_on_as_long_work(n_bytes));
  if (goes_on) return std::optional<Value>();
  BATON_TRY(Value items, json::parse_exact(stored->items, "stored items", context.is_unwanted));
  BATON_TRY(const Value response, json::parse_exact(stored->response, "a stored response", context.is_unwanted));
  for (const Value& item : response["output"]) items.push_back(item);
  return std::optional<Value>(std::move(items));
}

/// Finds items of the caller's stored responses, of the same cache salt. One response mostly has all items of a conversation.
class StoredItems {
 public:
  StoredItems(const Value& body, const ReadContext& context) : context_(context) {
    const Value* salt = json::find(body, "cache_salt");
    salt_ = cache_salt_of(context.caller, salt != nullptr && salt->is_string() ? salt->get<std::string>() : "");
  }

  Value find(std::string_view id) {
    if (const auto found = items_.find(id); found != items_.end()) return found->second;
    if (n_missed_ >= kMaxMissed) return nullptr;
    const auto stored = context_.responses.find_item(owner_of(context_.caller), id, Clock::now());
    if (stored != nullptr && stored->salt == salt_) {
      add(stored->items);
      add(stored->response);
    }
    const auto found = items_.find(id);
    if (found != items_.end()) return found->second;
    ++n_missed_;
    return nullptr;
  }

 private:
  static constexpr int kMaxMissed = 8;

  void add(std::string_view text) {
    const auto parsed = json::parse_exact(text, "stored items", context_.is_unwanted);
    if (!parsed) return;
    const Value* list = parsed->is_array() ? &*parsed : json::find(*parsed, "output");
    if (list == nullptr) return;
    for (const Value& item : *list)
      if (const Value* id = json::find(item, "id"); id != nullptr && id->is_string())
        items_.emplace(id->get<std::string>(), item);
  }

  const ReadContext& context_;
  std::string salt_;
  std::map<std::string, Value, std::less<>> items_;
  int n_missed_ = 0;
};

/// Reads a request after the earlier items of its conversation.
Result<ResponsesRequest> read_request(const Value& body, const Value& earlier, const ReadContext& context) {
  StoredItems stored(body, context);
  BATON_TRY(ResponsesRequest request,
            read_responses_request(body, earlier, [&](std::string_view id) { return stored.find(id); }));
  context.log_unknown_fields(request.unknown_fields);
  return request;
}

/// What the writer of the answer needs: what the response repeats of the request, and what is stored when it is complete.
/// Error: unavailable, if there is no room for it.
Result<ResponsePlan> response_plan(const ReadContext& context, ResponsesRequest& request, const ChatRequest& chat) {
  const std::string items = json::dump(request.items);
  ResponsePlan plan{std::move(request.repeated)};
  plan.tools = std::move(request.tools.by_name);
  plan.bytes = context.budgets.requests.share();
  if (!plan.bytes.grow(static_cast<std::int64_t>(items.size() + json::dump(plan.repeated).size())))
    return fail(ErrorCode::unavailable,
                "requests that wait or run take the memory that this server keeps for them: try again later");
  plan.repeated["temperature"] = shown(chat.generation.sampling.temperature);
  plan.repeated["top_p"] = shown(chat.generation.sampling.top_p);
  if (request.is_stored) {
    StoredResponse stored{{}, items, cache_salt_of(context.caller, chat.generation.cache_salt)};
    plan.keep = [&responses = context.responses, owner = owner_of(context.caller),
                 id = std::string(kResponses.ids) + *chat.generation.request_id,
                 stored = std::move(stored)](std::string response) mutable {
      stored.response = std::move(response);
      responses.put(owner, id, std::move(stored), Clock::now());
    };
  }
  return plan;
}

}  // namespace

std::string owner_of(const Caller& caller) { return caller.account == nullptr ? std::string() : caller.account->name(); }

Error no_such_response(std::string_view id, std::string_view param) {
  return {ErrorCode::not_found,
          fmt::format("Response with id '{}' not found: it was not stored, was dropped for newer ones, or is another key's",
                      id.substr(0, 100)),
          std::string(param)};
}

Result<std::optional<ConversationCall>> read_response_call(const Value& body, const ReadContext& context) {
  BATON_TRY(std::optional<Value> earlier, earlier_items(body, context));
  if (!earlier) return std::optional<ConversationCall>();
  const json::Dismantling end_of_earlier(*earlier);
  BATON_TRY(ResponsesRequest request, read_request(body, *earlier, context));
  const json::Dismantling end_of_chat(request.chat), end_of_items(request.items);
  // Clients ask for the response by its id, which no other client may guess.
  request.chat["request_id"] = random_id();
  auto chat = parse_chat_request(request.chat, context.model.defaults, context.bounds);
  if (!chat) return tl::unexpected<Error>(responses_error(std::move(chat.error()), request.tools.keys));
  const ChatDismantling end_of_chat_request(*chat);
  BATON_TRY(ResponsePlan made, response_plan(context, request, *chat));
  // Functions are copied, and a plan is not: the first writer takes it.
  auto plan = std::make_shared<ResponsePlan>(std::move(made));
  const auto writer_of = [plan = std::move(plan)](const ModelAndPrefix&, const Request&) -> MakeAnswerWriter {
    return [plan](const AnswerContent& content, const Tokenizer& tokenizer) {
      return std::make_unique<ResponsesWriter>(content, tokenizer, std::move(*plan));
    };
  };
  return std::optional(ConversationCall{std::move(*chat), writer_of, [keys = std::move(request.tools.keys)](Error error) {
                                          return responses_error(std::move(error), keys);
                                        }});
}

Result<std::optional<ChatRequest>> read_response_to_count(const Value& body, const ReadContext& context) {
  BATON_TRY(std::optional<Value> earlier, earlier_items(body, context));
  if (!earlier) return std::optional<ChatRequest>();
  const json::Dismantling end_of_earlier(*earlier);
  BATON_TRY(ResponsesRequest request, read_request(body, *earlier, context));
  const json::Dismantling end_of_chat(request.chat), end_of_items(request.items);
  auto chat = parse_chat_request(request.chat, context.model.defaults, context.bounds);
  if (!chat) return tl::unexpected<Error>(responses_error(std::move(chat.error()), request.tools.keys));
  return std::optional(std::move(*chat));
}

Value response_count(const Value& /*body*/, std::size_t n_tokens) {
  Value counted;
  counted["object"] = "response.input_tokens";
  counted["input_tokens"] = n_tokens;
  return counted;
}

}  // namespace baton
