/// Requests of the Anthropic dialect as calls for a conversation, and what they mark to be kept in the cache.
#include "server/dialects/messages/dialect.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "io/json_dismantle.h"
#include "server/dialects/fields.h"
#include "server/dialects/messages/answer.h"
#include "server/http/json_body.h"
#include "server/request/generation.h"
#include "server/request/json_fields.h"
#include "server/request/stamp.h"

namespace baton {
namespace {

using json::Value;

struct ReadMessage {
  ChatRequest chat;
  std::vector<CacheMark> marks;
  std::vector<std::string> tool_keys;
  std::string_view format;
};

/// Its name in a beta of the API.
constexpr std::string_view kOldOutputFormat = "output_format";

/// The format that a request asks of its answer, under the name that it gives it; null: none.
struct AskedFormat {
  std::string_view name = kOutputFormat;
  const Value* value = nullptr;
};

AskedFormat find_format(const Value& body) {
  const Value* config = find_given(body, "output_config");
  if (const Value* format = config == nullptr ? nullptr : find_given(*config, "format")) return {kOutputFormat, format};
  if (const Value* format = find_given(body, kOldOutputFormat)) return {kOldOutputFormat, format};
  return {};
}

Result<ReadMessage> read_message(const Value& body, const ReadContext& context, bool needs_max_tokens) {
  BATON_TRY(MessagesRequest request, read_messages_request(body, needs_max_tokens));
  const json::Dismantling end_of_chat(request.chat);
  context.log_unknown_fields(request.unknown_fields);
  auto chat = parse_chat_request(request.chat, context.model.defaults, context.bounds);
  const std::string_view format = find_format(body).name;
  if (!chat) return tl::unexpected<Error>(messages_error(std::move(chat.error()), request.tool_keys, format));
  return ReadMessage{std::move(*chat), std::move(request.marks), std::move(request.tool_keys), format};
}

/// The writer of the answer to a request with such a body, which keeps what is marked when the answer is complete.
MakeAnswerWriter marking_writer(const Value& body, const std::vector<CacheMark>& marks, const ReadContext& context,
                                const ModelAndPrefix& target, const Request& asked) {
  const std::vector<MarkedPrefix> marked =
      marked_prefixes(context.model, target.prefix, body, marks, asked.prompt, context.block_len, context.is_unwanted);
  std::vector<PrefixDefinition> kept;
  for (const MarkedPrefix& prefix : marked)
    kept.push_back({.name = {},
                    .messages = nullptr,
                    .ttl = prefix.ttl,
                    .tokens = {asked.prompt.begin(), asked.prompt.begin() + prefix.n_tokens},
                    .source = PrefixSource::mark,
                    .owner = context.caller.account == nullptr ? std::string() : context.caller.account->name(),
                    .max_pinned_blocks = context.caller.max_pinned_blocks,
                    .scope = asked.scope});
  std::function<void()> keep;
  if (!kept.empty()) keep = [&prefixes = context.prefixes, kept = std::move(kept)] { prefixes.want_marked(kept); };
  MessagesPlan plan{marked.empty() ? 0 : marked.back().n_tokens, has_context_management(body), std::move(keep)};
  return [plan = std::move(plan)](const AnswerContent& content, const Tokenizer&) {
    return std::make_unique<MessagesWriter>(content, plan);
  };
}

std::string_view messages_error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

/// The last one maps the name in errors only; it is a nested field.
constexpr SameField kSameMessagesFields[] = {
    {"model", "model"}, {"max_tokens", "max_tokens"}, {"stop_sequences", "stop"}, {"temperature", "temperature"},
    {"top_p", "top_p"}, {"top_k", "top_k"},           {"stream", "stream"},       {"output_config.effort", "reasoning_effort"}};

/// What a hosted server keeps for a conversation.
constexpr RefusedField kRefusedMessagesFields[] = {{"thread", ""}, {"prefill", ""}};

/// Fields that are read here, and fields without effect on the answer.
constexpr std::string_view kKnownMessagesFields[] = {
    "messages",      "system",        "tools",         "tool_choice",        "thinking",
    "output_config", "output_format", "cache_control", "context_management", "metadata",
    "service_tier",  "inference_geo", "speed",         "diagnostics",        "user_profile_id",
    "workspace_id",  "betas",         "billing_policy"};

Result<void> read_messages(const Value& body, MessagesReading& reading) {
  const Value* messages = find_given(body, "messages");
  if (messages == nullptr) return json::missing("messages");
  if (!messages->is_array()) return json::wrong_type("messages", "a list of messages", *messages);
  if (messages->empty()) return bad_field("messages", "must hold at least one message");
  for (std::size_t i = 0; i < messages->size(); ++i)
    BATON_TRY_VOID(read_message_blocks((*messages)[i], i, i + 1 == messages->size(), reading));
  // Without a block of its own the mark is the last one's.
  const Value* last = find_given(messages->back(), "content");
  const std::size_t last_block = last != nullptr && last->is_array() && !last->empty() ? last->size() - 1 : 0;
  BATON_TRY_VOID(read_mark(body, "", {CacheMark::Part::messages, messages->size() - 1, last_block}, reading.request.marks));
  // The answer continues where a last message of the assistant ends.
  if (reading.messages.empty()) return bad_field("messages", "says nothing to this model");
  const Value& final_message = reading.messages.back();
  if (!json::is_text(final_message["role"], "assistant")) return {};
  if (final_message.contains("tool_calls"))
    return bad_field("messages", "ends with \"tool_use\"; a \"tool_result\" for it is missing");
  reading.request.chat["continue_final_message"] = true;
  reading.request.chat["add_generation_prompt"] = false;
  return {};
}

Result<void> read_thinking(const Value& body, MessagesRequest& request) {
  const Value* thinking = find_given(body, "thinking");
  if (thinking == nullptr) return {};
  BATON_TRY(const std::string type, block_type(*thinking, "thinking"));
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    return bad_field("thinking.type", "must be \"enabled\", \"disabled\" or \"adaptive\", not \"{}\"", type.substr(0, 40));
  Value& variables = request.chat["chat_template_kwargs"];
  if (variables.is_null()) variables = Value::object();
  if (variables.is_object() && !variables.contains("enable_thinking")) variables["enable_thinking"] = type != "disabled";
  if (find_given(*thinking, "budget_tokens") != nullptr) request.unknown_fields.emplace_back("thinking.budget_tokens");
  return {};
}

/// Reads a format, which errors call `key`.
Result<void> read_output_format(const Value& format, const std::string& key, Value& chat) {
  BATON_TRY(const std::string type, block_type(format, key));
  const Value* schema = find_given(format, "schema");
  if (type != "json_schema" || schema == nullptr)
    return bad_field(key, "must be {{\"type\": \"json_schema\", \"schema\": ...}}");
  Value translated;
  translated["type"] = "json_schema";
  translated["json_schema"]["name"] = "output";
  translated["json_schema"]["schema"] = *schema;
  translated["json_schema"]["strict"] = true;
  chat["response_format"] = std::move(translated);
  return {};
}

Result<void> read_output_config(const Value& body, Value& chat) {
  const Value* config = find_given(body, "output_config");
  if (config != nullptr && !config->is_object()) return json::wrong_type("output_config", "an object", *config);
  if (const Value* effort = config == nullptr ? nullptr : find_given(*config, "effort")) chat["reasoning_effort"] = *effort;
  const AskedFormat format = find_format(body);
  return format.value == nullptr ? Result<void>() : read_output_format(*format.value, std::string(format.name), chat);
}

/// Types that stand for a schema, by how they begin: a date follows.
struct SchemaTool {
  std::string_view begin;
  std::string_view description;
  std::string_view schema;  ///< JSON text
};
constexpr SchemaTool kSchemaTools[] = {
    {"bash_", "Runs a command in a shell that stays open, and returns its output.",
     R"({"type":"object","properties":{"command":{"type":"string","description":"The command to run. Needed unless the shell is restarted."},"restart":{"type":"boolean","description":"Restarts the shell."}}})"},
    {"text_editor_", "Views, creates and changes text files.",
     R"({"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert","undo_edit"]},"path":{"type":"string","description":"An absolute path."},"file_text":{"type":"string","description":"Of create: the text of the file."},"view_range":{"type":"array","items":{"type":"integer"},"description":"Of view: the first and the last line."},"old_str":{"type":"string","description":"Of str_replace: the text to replace, which the file has once."},"new_str":{"type":"string","description":"Of str_replace and insert: the new text."},"insert_line":{"type":"integer","description":"Of insert: the line behind which the text goes."},"insert_text":{"type":"string","description":"Of insert: the new text."}},"required":["command","path"]})"},
    {"memory_", "Keeps notes in files below /memories, which outlive the conversation.",
     R"({"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert","delete","rename"]},"path":{"type":"string"},"view_range":{"type":"array","items":{"type":"integer"}},"file_text":{"type":"string"},"old_str":{"type":"string"},"new_str":{"type":"string"},"insert_line":{"type":"integer"},"insert_text":{"type":"string"},"old_path":{"type":"string"},"new_path":{"type":"string"}},"required":["command"]})"},
};

/// A tool as the `function` of a chat completion's; null: only a hosted server runs it.
Result<Value> read_tool(const Value& tool, const std::string& key) {
  if (!tool.is_object()) return json::wrong_type(key, "an object", tool);
  Value function;
  const Value* type = find_given(tool, "type");
  if (type == nullptr || json::is_text(*type, "custom")) {
    BATON_TRY(function["name"], string_member(tool, "name", key));
    if (const Value* description = find_given(tool, "description")) function["description"] = *description;
    const Value* schema = find_given(tool, "input_schema");
    if (schema == nullptr || !schema->is_object()) return bad_field(key + ".input_schema", "must be a JSON schema, an object");
    function["parameters"] = *schema;
    if (const Value* strict = find_given(tool, "strict")) function["strict"] = *strict;
    return function;
  }
  if (json::is_text(*type, "function"))
    return bad_field(key, "is a tool as OpenAI's API has them; this one takes name, description and input_schema");
  BATON_TRY(const std::string name, block_type(tool, key));
  const auto typed = std::ranges::find_if(kSchemaTools, [&](const SchemaTool& one) { return name.starts_with(one.begin); });
  if (typed == std::end(kSchemaTools)) return Value();
  BATON_TRY(function["name"], string_member(tool, "name", key));
  function["description"] = std::string(typed->description);
  BATON_TRY(function["parameters"], json::parse(typed->schema, "a schema"));
  return function;
}

/// The tokens that a prompt has in common with its request cut at a mark; 0 if that cannot be rendered.
std::int32_t n_marked_tokens(const ServedModel& model, const Prefixes::Use& prefix, const json::Value& body,
                             const CacheMark& mark, std::span<const TokenId> prompt, const IsCancelled& is_cancelled) {
  auto cut = read_messages_request(cut_at_mark(body, mark), /*needs_max_tokens=*/false);
  if (!cut) return 0;
  cut->chat["add_generation_prompt"] = false;
  const auto chat = parse_chat_request(cut->chat, model.defaults, {model.n_vocab, 0});
  if (!chat) return 0;
  const auto rendered = tokenize_chat(model, prefix, *chat, is_cancelled);
  if (!rendered) return 0;
  return static_cast<std::int32_t>(std::ranges::mismatch(prompt, rendered->tokens).in1 - prompt.begin());
}

}  // namespace

std::vector<MarkedPrefix> marked_prefixes(const ServedModel& model, const Prefixes::Use& prefix, const json::Value& body,
                                          std::span<const CacheMark> marks, std::span<const TokenId> prompt,
                                          std::int32_t block_len, const IsCancelled& is_cancelled) {
  std::vector<MarkedPrefix> found;
  for (std::size_t i = marks.size(); i-- > 0;) {
    if (std::ranges::find(found, marks[i].ttl, &MarkedPrefix::ttl) != found.end()) continue;
    const std::int32_t n_tokens = n_marked_tokens(model, prefix, body, marks[i], prompt, is_cancelled);
    if (n_tokens >= block_len) found.push_back({n_tokens - n_tokens % block_len, marks[i].ttl});
  }
  std::ranges::sort(found, {}, &MarkedPrefix::n_tokens);
  return found;
}

Result<void> read_message_tools(const Value& body, MessagesReading& reading) {
  const Value* given = find_given(body, "tools");
  if (given == nullptr) return {};
  if (!given->is_array()) return json::wrong_type("tools", "a list of tools", *given);
  Value tools = Value::array();
  for (std::size_t i = 0; i < given->size(); ++i) {
    const std::string key = fmt::format("tools[{}]", i);
    BATON_TRY(Value function, read_tool((*given)[i], key));
    BATON_TRY_VOID(read_mark((*given)[i], key, {CacheMark::Part::tools, i}, reading.request.marks));
    if (function.is_null()) {
      reading.request.unknown_fields.push_back(fmt::format("tool {}", json::dump((*given)[i]["type"]).substr(0, 40)));
      continue;
    }
    Value& tool = tools.emplace_back();
    tool["type"] = "function";
    tool["function"] = std::move(function);
    reading.request.tool_keys.push_back(key);
  }
  if (!tools.empty()) reading.request.chat["tools"] = std::move(tools);
  return {};
}

Result<void> read_message_choice(const Value& body, Value& chat) {
  const std::string key = "tool_choice";
  const Value* choice = find_given(body, key);
  if (choice == nullptr) return {};
  BATON_TRY(const std::string type, block_type(*choice, key));
  if (type == "auto" || type == "none") {
    chat[key] = type;
  } else if (type == "any") {
    chat[key] = "required";
  } else if (type == "tool") {
    Value named;
    named["type"] = "function";
    BATON_TRY(named["function"]["name"], string_member(*choice, "name", key));
    chat[key] = std::move(named);
  } else {
    return bad_field("tool_choice.type", "must be \"auto\", \"any\", \"tool\" or \"none\", not \"{}\"", type.substr(0, 40));
  }
  BATON_TRY(const bool is_serial, flag_field(*choice, "disable_parallel_tool_use", false));
  if (is_serial) chat["parallel_tool_calls"] = false;
  return {};
}

Result<MessagesRequest> read_messages_request(const Value& body, bool needs_max_tokens) {
  BATON_TRY_VOID(check_dialect_fields(body, kRefusedMessagesFields));
  MessagesReading reading;
  MessagesRequest& request = reading.request;
  request.chat = Value::object();
  request.unknown_fields = unknown_dialect_fields(body, kKnownMessagesFields, kSameMessagesFields, kRefusedMessagesFields);
  copy_same_fields(body, kSameMessagesFields, request.chat);
  if (needs_max_tokens && find_given(body, "max_tokens") == nullptr) return json::missing("max_tokens");
  if (const Value* stop = find_given(body, "stop_sequences"); stop != nullptr && !stop->is_array())
    return json::wrong_type("stop_sequences", "a list of strings", *stop);
  BATON_TRY_VOID(read_message_tools(body, reading));
  BATON_TRY_VOID(read_message_choice(body, request.chat));
  if (const Value* system = find_given(body, "system")) BATON_TRY_VOID(read_system(*system, reading));
  BATON_TRY_VOID(read_messages(body, reading));
  BATON_TRY_VOID(read_thinking(body, request));
  BATON_TRY_VOID(read_output_config(body, request.chat));
  request.chat["messages"] = std::move(reading.messages);
  return std::move(request);
}

Error messages_error(Error error, std::span<const std::string> tool_keys, std::string_view format) {
  return in_words_of({.same = kSameMessagesFields, .parameters = "input_schema", .format = format, .tools = tool_keys},
                     std::move(error));
}

bool has_context_management(const Value& body) { return find_given(body, "context_management") != nullptr; }

Value cut_at_mark(const Value& body, const CacheMark& mark) {
  const auto keep_first = [](Value& list, std::size_t n) {
    if (list.is_array() && list.size() > n) list.erase(list.begin() + static_cast<std::ptrdiff_t>(n), list.end());
  };
  Value cut = body;
  if (mark.part == CacheMark::Part::messages) {
    keep_first(cut["messages"], mark.index + 1);
    keep_first(cut["messages"].back()["content"], mark.block + 1);
    return cut;
  }
  cut["messages"] = Value::array({chat_message("user", "")});
  if (mark.part == CacheMark::Part::system) {
    keep_first(cut["system"], mark.index + 1);
  } else {
    keep_first(cut["tools"], mark.index + 1);
    cut.erase("system");
    // The choice may name a tool that is left out.
    cut.erase("tool_choice");
  }
  return cut;
}

Value messages_error_body(int status, std::string_view message) {
  // A long message is shortened there.
  const Value shortened = error_body(status, message, {});
  Value body;
  body["type"] = "error";
  body["error"]["type"] = std::string(messages_error_type(status));
  body["error"]["message"] = shortened["error"]["message"];
  return body;
}

HttpResponse messages_error_response(int status, std::string_view message) {
  return as_messages_error(error_response(status, message, {}));
}

HttpResponse as_messages_error(HttpResponse response) {
  std::string message(reason_phrase(response.status));
  if (const auto body = json::parse(response.body, "an error")) {
    const Value* const error = json::find(*body, "error");
    const Value* const text = error == nullptr ? nullptr : error->is_string() ? error : json::find(*error, "message");
    if (text != nullptr && text->is_string()) message = *text;
  }
  response.body = json::dump(messages_error_body(response.status, message));
  return response;
}

Error messages_excess(const ContextExcess& excess) {
  if (!excess.max_tokens)  // a prompt as long as the context leaves no room for an answer
    return {ErrorCode::invalid_request,
            fmt::format("prompt is too long: {} tokens > {} maximum", excess.prompt_len,
                        excess.prompt_len > excess.max_len ? excess.max_len : excess.max_len - 1),
            "messages"};
  return {ErrorCode::invalid_request,
          fmt::format("input length and `max_tokens` exceed context limit: {} + {} > {}, decrease input length or `max_tokens` "
                      "and try again",
                      excess.prompt_len, *excess.max_tokens, excess.max_len),
          "max_tokens"};
}

HttpHeaders messages_headers() { return {{"request-id", "req_" + random_id()}}; }

Result<std::optional<ConversationCall>> read_message_call(const Value& body, const ReadContext& context) {
  BATON_TRY(ReadMessage read, read_message(body, context, /*needs_max_tokens=*/true));
  const ChatDismantling end_of_chat(read.chat);
  auto writer_of = [&body, &context, marks = std::move(read.marks)](const ModelAndPrefix& target, const Request& asked) {
    return marking_writer(body, marks, context, target, asked);
  };
  return std::optional(ConversationCall{std::move(read.chat), std::move(writer_of),
                                        [keys = std::move(read.tool_keys), format = read.format](Error error) {
                                          return messages_error(std::move(error), keys, format);
                                        }});
}

Result<std::optional<ChatRequest>> read_message_to_count(const Value& body, const ReadContext& context) {
  BATON_TRY(ReadMessage read, read_message(body, context, /*needs_max_tokens=*/false));
  return std::optional(std::move(read.chat));
}

Value message_count(const Value& body, std::size_t n_tokens) {
  Value counted;
  counted["input_tokens"] = n_tokens;
  // Nothing was taken out of the conversation.
  if (has_context_management(body)) counted["context_management"]["original_input_tokens"] = n_tokens;
  return counted;
}

}  // namespace baton
