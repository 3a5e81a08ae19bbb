/// Requests of the Responses dialect as calls for a conversation: what they continue, and what is stored of them.
#include "server/dialects/responses/dialect.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "io/json_dismantle.h"
#include "io/json_parse.h"
#include "server/dialects/fields.h"
#include "server/dialects/responses/answer.h"
#include "server/dialects/responses/store.h"
#include "server/request/generation.h"
#include "server/request/json_fields.h"
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

/// The last one maps the name in errors only; it is a nested field.
constexpr SameField kSameResponsesFields[] = {{"model", "model"},
                                              {"max_output_tokens", "max_tokens"},
                                              {"temperature", "temperature"},
                                              {"top_p", "top_p"},
                                              {"top_k", "top_k"},
                                              {"parallel_tool_calls", "parallel_tool_calls"},
                                              {"stream", "stream"},
                                              {"reasoning.effort", "reasoning_effort"}};

constexpr RefusedField kRefusedResponsesFields[] = {
    {"background", "false"}, {"conversation", ""}, {"prompt", ""}, {"moderation", ""}};

/// Fields that are read here, and fields without effect on the answer.
constexpr std::string_view kKnownResponsesFields[] = {"input",
                                                      "instructions",
                                                      "tools",
                                                      "tool_choice",
                                                      "text",
                                                      "reasoning",
                                                      "include",
                                                      "metadata",
                                                      "store",
                                                      "previous_response_id",
                                                      "top_logprobs",
                                                      "stream_options",
                                                      "max_tool_calls",
                                                      "truncation",
                                                      "context_management",
                                                      "client_metadata",
                                                      "user",
                                                      "safety_identifier",
                                                      "service_tier",
                                                      "prompt_cache_retention",
                                                      "prompt_cache_options"};

/// Members of a response that are the request's own, in their order, and what they are if the request has none.
struct RepeatedField {
  std::string_view name;
  std::string_view otherwise;  ///< JSON text
};
constexpr RepeatedField kRepeatedFields[] = {{"background", "false"},
                                             {"instructions", "null"},
                                             {"max_output_tokens", "null"},
                                             {"max_tool_calls", "null"},
                                             {"metadata", "{}"},
                                             {"parallel_tool_calls", "true"},
                                             {"previous_response_id", "null"},
                                             {"prompt_cache_key", "null"},
                                             {"reasoning", R"({"effort":null,"summary":null})"},
                                             {"safety_identifier", "null"},
                                             {"service_tier", "\"default\""},
                                             {"store", "true"},
                                             {"temperature", "null"},
                                             {"text", R"({"format":{"type":"text"}})"},
                                             {"tool_choice", "\"auto\""},
                                             {"tools", "[]"},
                                             {"top_logprobs", "0"},
                                             {"top_p", "null"},
                                             {"truncation", "\"disabled\""},
                                             {"user", "null"}};

/// Fields of which a response repeats what is given, whatever it is.
constexpr std::string_view kRepeatedStrings[] = {"user", "safety_identifier", "prompt_cache_key", "service_tier"};
constexpr std::size_t kMaxRepeatedString = 1024;
constexpr std::size_t kMaxRepeatedBytes = std::size_t{2} << 20;

constexpr std::size_t kMaxMetadata = 16;
constexpr std::size_t kMaxMetadataName = 64;
constexpr std::size_t kMaxMetadataValue = 512;

/// Values of `include` that ask for parts of tools which this server does not run, or that change nothing here: reasoning is
/// given as text.
constexpr std::string_view kIncludedWithoutEffect[] = {"file_search_call.results",
                                                       "web_search_call.results",
                                                       "web_search_call.action.sources",
                                                       "message.input_image.image_url",
                                                       "computer_call_output.output.image_url",
                                                       "code_interpreter_call.outputs",
                                                       "reasoning.encrypted_content"};

Value repeated_members(const Value& body) {
  Value repeated = Value::object();
  for (const RepeatedField& field : kRepeatedFields) {
    const Value* given = find_given(body, field.name);
    repeated[std::string(field.name)] = given == nullptr ? *json::parse(field.otherwise, "a default") : *given;
  }
  return repeated;
}

Result<void> read_text_field(const Value& body, ResponsesRequest& request) {
  const Value* text = find_given(body, "text");
  if (text == nullptr) return {};
  if (!text->is_object()) return json::wrong_type("text", "an object", *text);
  if (const Value* verbosity = find_given(*text, "verbosity"); verbosity != nullptr && !json::is_text(*verbosity, "medium"))
    request.unknown_fields.emplace_back("text.verbosity");
  const Value* format = find_given(*text, "format");
  if (format == nullptr) return {};
  if (!format->is_object()) return json::wrong_type("text.format", "an object", *format);
  BATON_TRY(const std::string type, string_member(*format, "type", "text.format"));
  Value translated;
  translated["type"] = type;
  if (type == "json_schema") {
    translated["json_schema"] = Value::object();
    for (const char* const member : {"name", "description", "schema", "strict"})
      if (const Value* value = find_given(*format, member)) translated["json_schema"][member] = *value;
  } else if (type != "text" && type != "json_object") {
    return bad_field("text.format.type", "must be \"text\", \"json_object\" or \"json_schema\", not \"{}\"",
                     type.substr(0, 40));
  }
  request.chat["response_format"] = std::move(translated);
  return {};
}

Result<void> read_reasoning_field(const Value& body, ResponsesRequest& request) {
  const Value* reasoning = find_given(body, "reasoning");
  if (reasoning == nullptr) return {};
  if (!reasoning->is_object()) return json::wrong_type("reasoning", "an object", *reasoning);
  if (const Value* effort = find_given(*reasoning, "effort")) request.chat["reasoning_effort"] = *effort;
  for (const char* const member : {"summary", "generate_summary"})
    if (find_given(*reasoning, member) != nullptr) request.unknown_fields.push_back(std::string("reasoning.") + member);
  return {};
}

Result<void> read_include(const Value& body, ResponsesRequest& request) {
  Value& chat = request.chat;
  const Value* include = find_given(body, "include");
  bool wants_logprobs = false;
  if (include != nullptr) {
    BATON_TRY(const auto names, json::convert<std::vector<std::string>>(*include, "include"));
    for (const std::string& name : names) {
      if (name == "message.output_text.logprobs")
        wants_logprobs = true;
      else if (std::ranges::find(kIncludedWithoutEffect, name) == std::end(kIncludedWithoutEffect))
        request.unknown_fields.push_back("include." + name.substr(0, 60));
    }
  }
  const Value* n_top = find_given(body, "top_logprobs");
  if (n_top != nullptr && *n_top != 0) wants_logprobs = true;
  if (!wants_logprobs) return {};
  chat["logprobs"] = true;
  if (n_top != nullptr) chat["top_logprobs"] = *n_top;
  return {};
}

Result<void> check_metadata(const Value& body) {
  const Value* metadata = find_given(body, "metadata");
  if (metadata == nullptr) return {};
  if (!metadata->is_object()) return json::wrong_type("metadata", "an object of strings", *metadata);
  if (metadata->size() > kMaxMetadata)
    return bad_field("metadata", "has {} members; this server accepts {}", metadata->size(), kMaxMetadata);
  for (const auto& [name, value] : metadata->get_ref<const Value::object_t&>())
    if (!value.is_string() || name.size() > kMaxMetadataName || value.get_ref<const std::string&>().size() > kMaxMetadataValue)
      return bad_field("metadata", "must have names of at most {} bytes and strings of at most {}", kMaxMetadataName,
                       kMaxMetadataValue);
  return {};
}

/// A response repeats these members several times in a stream, so they are bounded.
Result<void> check_repeated(const Value& body, const Value& repeated) {
  for (const std::string_view name : kRepeatedStrings) {
    BATON_TRY(const auto text, json::get_optional<std::string>(body, name));
    if (text && text->size() > kMaxRepeatedString)
      return bad_field(name, "has {} bytes; this server accepts {}", text->size(), kMaxRepeatedString);
  }
  BATON_TRY_VOID(integer_field(body, "max_tool_calls", 0, std::numeric_limits<std::int32_t>::max()));
  const std::size_t n_bytes = json::dump(repeated).size();
  if (n_bytes > kMaxRepeatedBytes)
    return bad("tools",
               "the members that the response repeats ('tools', 'text', 'instructions', ...) have {} bytes of "
               "JSON; this server accepts {}",
               n_bytes, kMaxRepeatedBytes);
  return {};
}

/// Notes in the log what has no effect: each type once.
void note(std::string_view what, const std::vector<std::string>& types, ResponsesRequest& request) {
  for (const std::string& type : types) request.unknown_fields.push_back(fmt::format("{} \"{}\"", what, type.substr(0, 40)));
}

/// The messages of the instructions, of earlier items and of the input, and the tools that they bring.
Result<void> read_conversation_items(const Value& body, const Value& earlier, const FindItem& find, ResponsesRequest& request) {
  const Value* input = find_given(body, "input");
  if (input == nullptr) return json::missing("input");
  BATON_TRY(const Value added, read_input_items(*input));
  request.items = earlier;
  for (const Value& item : added) request.items.push_back(item);
  if (find) request.items = with_referred_items(std::move(request.items), find);
  BATON_TRY(const ItemMessages said, messages_of_items(request.items, earlier.size()));
  note("input item", said.left_out, request);
  for (const Value& tools : said.tools)
    BATON_TRY_VOID(add_response_tools(tools, "input.tools", /*is_first=*/true, request.tools));
  Value messages = Value::array();
  BATON_TRY(const auto instructions, json::get_optional<std::string>(body, "instructions"));
  if (instructions) messages.push_back(chat_message("system", *instructions));
  for (const Value& message : said.messages) messages.push_back(message);
  if (messages.empty()) return bad_field("input", "must hold at least one item");
  request.chat["messages"] = std::move(messages);
  return {};
}

}  // namespace

Result<std::optional<std::string>> previous_response_of(const Value& body) {
  return json::get_optional<std::string>(body, "previous_response_id");
}

Result<ResponsesRequest> read_responses_request(const Value& body, const Value& earlier, const FindItem& find) {
  BATON_TRY_VOID(check_dialect_fields(body, kRefusedResponsesFields));
  ResponsesRequest request;
  request.chat = Value::object();
  request.unknown_fields = unknown_dialect_fields(body, kKnownResponsesFields, kSameResponsesFields, kRefusedResponsesFields);
  copy_same_fields(body, kSameResponsesFields, request.chat);
  request.repeated = repeated_members(body);
  BATON_TRY(request.is_stored, flag_field(body, "store", true));
  BATON_TRY_VOID(check_metadata(body));
  BATON_TRY_VOID(check_repeated(body, request.repeated));
  if (const Value* tools = find_given(body, "tools"))
    BATON_TRY_VOID(add_response_tools(*tools, "tools", /*is_first=*/false, request.tools));
  BATON_TRY_VOID(read_text_field(body, request));
  BATON_TRY_VOID(read_reasoning_field(body, request));
  BATON_TRY_VOID(read_include(body, request));
  BATON_TRY_VOID(read_conversation_items(body, earlier, find, request));
  BATON_TRY_VOID(set_response_tools(body, request.tools, request.chat));
  note("tool", request.tools.left_out, request);
  return request;
}

Error responses_error(Error error, std::span<const std::string> tool_keys) {
  return in_words_of({.same = kSameResponsesFields, .messages = "input", .format = "text.format", .tools = tool_keys},
                     std::move(error));
}

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
