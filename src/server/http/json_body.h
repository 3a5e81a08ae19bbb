/// Bodies of requests and answers that are JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "core/result.h"
#include "io/json.h"
#include "server/http/message.h"

namespace baton {

/// The most values that a JSON text can have: its elements and members, and itself. Texts that are not JSON have any
/// number.
std::int64_t count_json_values(std::string_view text);

/// The object in a request's body, which has at most `max_values` values: as text they take a few bytes, in memory many.
/// Errors: too_large, invalid_request; unavailable once `is_cancelled` says that no client waits for it (empty: never).
Result<json::Value> parse_body(const HttpRequest& request, std::int64_t max_values,
                               const std::function<bool()>& is_cancelled = {});

/// 200 with `body`.
HttpResponse json_response(const json::Value& body);
/// The response for an error. Errors of the server are logged.
HttpResponse logged_error_response(const Error& error);

}  // namespace baton
