/// The dialect of the Anthropic API.
#pragma once

#include <cstddef>
#include <optional>

#include "server/dialects/dialect.h"
#include "server/dialects/messages/error.h"

namespace baton {

Result<std::optional<ConversationCall>> read_message_call(const json::Value& body, const ReadContext& context);
Result<std::optional<ChatRequest>> read_message_to_count(const json::Value& body, const ReadContext& context);
json::Value message_count(const json::Value& body, std::size_t n_tokens);

inline constexpr Dialect kMessages = {.path = "/v1/messages",
                                      .count_path = "/v1/messages/count_tokens",
                                      .ids = "msg_",
                                      .errors = {as_messages_error, messages_headers},
                                      .too_long = messages_excess,
                                      .read = read_message_call,
                                      .read_to_count = read_message_to_count,
                                      .count_answer = message_count};

}  // namespace baton
