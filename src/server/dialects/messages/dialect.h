/// The dialect of the Anthropic API: its requests as chat completions, its errors.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "io/json.h"
#include "server/dialects/dialect.h"
#include "server/dialects/messages/blocks.h"
#include "server/http/message.h"
#include "server/prompt/prompts.h"

namespace baton {

/// Reads a request's body, an object. `needs_max_tokens`: the request is for an answer, not for a count. Errors
/// (invalid_request) name the field: a wrong type, a kind of block, tool or field that is not supported.
Result<MessagesRequest> read_messages_request(const json::Value& body, bool needs_max_tokens);

constexpr std::string_view kOutputFormat = "output_config.format";

/// An error of the chat completion in the words of this dialect. `tool_keys`, `format`: what the request calls its tools and
/// the format of its answer.
Error messages_error(Error error, std::span<const std::string> tool_keys = {}, std::string_view format = kOutputFormat);

/// Whether a request asks for edits of its conversation.
bool has_context_management(const json::Value& body);

/// The body of a request that ends at a mark of it: what comes after is left out, except that a conversation without a
/// message has an empty one of the user.
json::Value cut_at_mark(const json::Value& body, const CacheMark& mark);

/// Reads `tools`. Tools with a type that the client runs (a shell, an editor, a memory) are functions with the schema that the type
/// stands for; tools that only a hosted server runs are left out. Errors (invalid_request) name the tool.
Result<void> read_message_tools(const json::Value& body, MessagesReading& reading);
Result<void> read_message_choice(const json::Value& body, json::Value& chat);

/// The first tokens of a prompt, to be kept for some time.
struct MarkedPrefix {
  std::int32_t n_tokens = 0;
  std::chrono::seconds ttl{0};
};

/// For each time of the marks the longest prefix of `prompt` that is marked with it, in whole blocks of `block_len` tokens;
/// the longest is the last. What a mark covers are the tokens that the request has in common with the request cut after
/// the mark, so it does not depend on what follows. A mark without a whole block, or one at which the chat template cannot
/// end, is left out.
std::vector<MarkedPrefix> marked_prefixes(const ServedModel& model, const Prefixes::Use& prefix, const json::Value& body,
                                          std::span<const CacheMark> marks, std::span<const TokenId> prompt,
                                          std::int32_t block_len, const IsCancelled& is_cancelled = {});

Result<std::optional<ConversationCall>> read_message_call(const json::Value& body, const ReadContext& context);
Result<std::optional<ChatRequest>> read_message_to_count(const json::Value& body, const ReadContext& context);
json::Value message_count(const json::Value& body, std::size_t n_tokens);

/// {"type": "error", "error": {"type", "message"}}
json::Value messages_error_body(int status, std::string_view message);
HttpResponse messages_error_response(int status, std::string_view message);

/// The two sentences by which clients of this API know that they must shorten the conversation.
Error messages_excess(const ContextExcess& excess);

/// An error response of the OpenAI dialect in the form of this one: its status, its headers, and its message.
HttpResponse as_messages_error(HttpResponse response);

/// The header that every answer of this dialect has.
HttpHeaders messages_headers();

inline constexpr Dialect kMessages = {.path = "/v1/messages",
                                      .count_path = "/v1/messages/count_tokens",
                                      .ids = "msg_",
                                      .errors = {as_messages_error, messages_headers},
                                      .too_long = messages_excess,
                                      .read = read_message_call,
                                      .read_to_count = read_message_to_count,
                                      .count_answer = message_count};

}  // namespace baton
