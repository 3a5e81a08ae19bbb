/// Fields, one function for each kind.
#include "server/dialects/messages/request.h"

#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "server/dialects/fields.h"
#include "server/dialects/messages/blocks.h"
#include "server/dialects/messages/tools.h"
#include "server/request/json_fields.h"

namespace baton {
namespace {

using json::Value;
using openai::bad;
using openai::find_given;

/// The last ones map the names in errors only; they are nested fields.
constexpr SameField kSameMessagesFields[] = {{"model", "model"},
                                             {"max_tokens", "max_tokens"},
                                             {"stop_sequences", "stop"},
                                             {"temperature", "temperature"},
                                             {"top_p", "top_p"},
                                             {"top_k", "top_k"},
                                             {"stream", "stream"},
                                             {"output_config.format", "response_format"},
                                             {"output_config.effort", "reasoning_effort"}};

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
  if (messages->empty()) return bad("messages", "'messages' must hold at least one message");
  for (std::size_t i = 0; i < messages->size(); ++i)
    BATON_TRY_VOID(read_message_blocks((*messages)[i], i, i + 1 == messages->size(), reading));
  // Without a block of its own the mark is the last one's.
  const Value* last = find_given(messages->back(), "content");
  const std::size_t last_block = last != nullptr && last->is_array() && !last->empty() ? last->size() - 1 : 0;
  BATON_TRY_VOID(read_mark(body, "", {CacheMark::Part::messages, messages->size() - 1, last_block}, reading.request.marks));
  // The answer continues where a last message of the assistant ends.
  if (reading.messages.empty()) return bad("messages", "'messages' says nothing to this model");
  const Value& final_message = reading.messages.back();
  if (!json::is_text(final_message["role"], "assistant")) return {};
  if (final_message.contains("tool_calls"))
    return bad("messages", "'messages' ends with \"tool_use\"; a \"tool_result\" for it is missing");
  reading.request.chat["continue_final_message"] = true;
  reading.request.chat["add_generation_prompt"] = false;
  return {};
}

Result<void> read_thinking(const Value& body, MessagesRequest& request) {
  const Value* thinking = find_given(body, "thinking");
  if (thinking == nullptr) return {};
  BATON_TRY(const std::string type, block_type(*thinking, "thinking"));
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    return bad("thinking.type", fmt::format("'thinking.type' must be \"enabled\", \"disabled\" or \"adaptive\", not \"{}\"",
                                            type.substr(0, 40)));
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
    return bad(key, fmt::format("'{}' must be {{\"type\": \"json_schema\", \"schema\": ...}}", key));
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
  if (const Value* format = config == nullptr ? nullptr : find_given(*config, "format"))
    return read_output_format(*format, "output_config.format", chat);
  // Its name in a beta of the API.
  if (const Value* format = find_given(body, "output_format")) return read_output_format(*format, "output_format", chat);
  return {};
}

}  // namespace

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

Error messages_error(Error error, std::span<const std::string> tool_keys) {
  return in_words_of({.same = kSameMessagesFields, .parameters = "input_schema", .tools = tool_keys}, std::move(error));
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

}  // namespace baton
