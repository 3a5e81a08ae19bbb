/// Fields, tools and choices, one function for each kind.
#include "server/dialects/responses/request.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "server/dialects/fields.h"
#include "server/dialects/responses/items.h"
#include "server/request/json_fields.h"

namespace baton {
namespace {

using json::Value;
using openai::bad;
using openai::find_given;
using openai::string_member;

/// The last ones map the names in errors only; they are nested fields.
constexpr SameField kSameResponsesFields[] = {{"model", "model"},
                                              {"max_output_tokens", "max_tokens"},
                                              {"temperature", "temperature"},
                                              {"top_p", "top_p"},
                                              {"top_k", "top_k"},
                                              {"parallel_tool_calls", "parallel_tool_calls"},
                                              {"stream", "stream"},
                                              {"text.format", "response_format"},
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
    for (const char* const member : {"name", "description", "schema", "strict"})
      if (const Value* value = find_given(*format, member)) translated["json_schema"][member] = *value;
  } else if (type != "text" && type != "json_object") {
    return bad("text.format.type", fmt::format("'text.format.type' must be \"text\", \"json_object\" or \"json_schema\", not "
                                               "\"{}\"",
                                               type.substr(0, 40)));
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
    return bad("metadata", fmt::format("'metadata' has {} members; this server accepts {}", metadata->size(), kMaxMetadata));
  for (const auto& [name, value] : metadata->get_ref<const Value::object_t&>())
    if (!value.is_string() || name.size() > kMaxMetadataName || value.get_ref<const std::string&>().size() > kMaxMetadataValue)
      return bad("metadata", fmt::format("'metadata' must have names of at most {} bytes and strings of at most {}",
                                         kMaxMetadataName, kMaxMetadataValue));
  return {};
}

/// A response repeats these members several times in a stream, so they are bounded.
Result<void> check_repeated(const Value& body, const Value& repeated) {
  for (const std::string_view name : kRepeatedStrings) {
    BATON_TRY(const auto text, json::get_optional<std::string>(body, name));
    if (text && text->size() > kMaxRepeatedString)
      return bad(name, fmt::format("'{}' has {} bytes; this server accepts {}", name, text->size(), kMaxRepeatedString));
  }
  BATON_TRY_VOID(openai::integer_field(body, "max_tool_calls", 0, std::numeric_limits<std::int32_t>::max()));
  const std::size_t n_bytes = json::dump(repeated).size();
  if (n_bytes > kMaxRepeatedBytes)
    return fail(ErrorCode::invalid_request,
                fmt::format("the members that the response repeats ('tools', 'text', 'instructions', ...) have {} bytes of "
                            "JSON; this server accepts {}",
                            n_bytes, kMaxRepeatedBytes),
                "tools");
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
  if (messages.empty()) return bad("input", "'input' must hold at least one item");
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
  BATON_TRY(request.is_stored, openai::flag_field(body, "store", true));
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
  return in_words_of({.same = kSameResponsesFields, .messages = "input", .tools = tool_keys}, std::move(error));
}

}  // namespace baton
