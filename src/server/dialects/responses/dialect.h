/// The dialect of the OpenAI API's responses: its requests as chat completions, and what they continue.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "io/json.h"
#include "server/dialects/dialect.h"
#include "server/dialects/responses/items.h"
#include "server/dialects/responses/tools.h"

namespace baton {

struct ResponsesRequest {
  json::Value chat;   ///< the body of a chat completion that asks for the same
  json::Value items;  ///< the input items of the conversation so far, each with a type and an id
  /// The members of the response that repeat the request.
  json::Value repeated;
  ResponseTools tools;
  bool is_stored = true;
  std::vector<std::string> unknown_fields;  ///< ignored
};

/// The response that a request's body, an object, continues. Error: invalid_request.
Result<std::optional<std::string>> previous_response_of(const json::Value& body);

/// Reads a request's body, an object, whose conversation begins with `earlier` items (a list). `find` finds items that the
/// input refers to. Errors (invalid_request) name the field: a wrong type, a kind of item, tool or field that is not supported.
Result<ResponsesRequest> read_responses_request(const json::Value& body, const json::Value& earlier, const FindItem& find = {});

/// An error of the chat completion in the words of this dialect. `tool_keys`: what the client calls its tools.
Error responses_error(Error error, std::span<const std::string> tool_keys = {});

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
