/// The dialect of the OpenAI API's responses.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "server/dialects/dialect.h"

namespace baton {

Result<std::optional<ConversationCall>> read_response_call(const json::Value& body, const ReadContext& context);
Result<std::optional<ChatRequest>> read_response_to_count(const json::Value& body, const ReadContext& context);
json::Value response_count(const json::Value& body, std::size_t n_tokens);

inline constexpr Dialect kResponses = {.path = "/v1/responses",
                                       .count_path = "/v1/responses/input_tokens",
                                       .ids = "resp_",
                                       .read = read_response_call,
                                       .read_to_count = read_response_to_count,
                                       .count_answer = response_count};
/// Of one response: /v1/responses/ID.
inline constexpr std::string_view kResponsePath = "/v1/responses/";

/// Whose stored responses a caller sees (see ResponseStore).
std::string owner_of(const Caller& caller);
/// The error about the id of a response in the field `param`.
Error no_such_response(std::string_view id, std::string_view param);

}  // namespace baton
