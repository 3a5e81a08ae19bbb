/// Errors as clients of the OpenAI dialect expect them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "io/json.h"
#include "server/http/message.h"

namespace baton {

/// 400 for invalid_request, 404, 413, 501, 503; everything else is 500.
int http_status(ErrorCode code);

/// The first names of a list for a message: "a, b", "a, b, ... and 90 more", or "none".
std::string short_list(std::span<const std::string> names);

/// How errors begin that say that a prompt, or the answer after it, does not fit the context.
inline constexpr std::string_view kContextLengthSentence = "This model's maximum context length is ";

/// {"error": {"message", "type", "param", "code"}}; `param` is null when empty. `code` is the status, except that errors that begin
/// with kContextLengthSentence have "context_length_exceeded", by which clients know that they must shorten the conversation.
json::Value error_body(int status, std::string_view message, std::string_view param);
/// A 503 says with Retry-After that the same request may succeed later.
HttpResponse error_response(int status, std::string_view message, std::string_view param);
HttpResponse error_response(const Error& error);

}  // namespace baton
