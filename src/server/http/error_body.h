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

/// {"error": {"message", "type", "param", "code"}}; `code` is the status, `param` null when empty.
json::Value error_body(int status, std::string_view message, std::string_view param);
/// A 503 says with Retry-After that the same request may succeed later.
HttpResponse error_response(int status, std::string_view message, std::string_view param);
HttpResponse error_response(const Error& error);

}  // namespace baton
