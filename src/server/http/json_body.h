/// Bodies of requests and answers that are JSON.
#pragma once

#include <cstdint>
#include <functional>

#include "core/result.h"
#include "io/json.h"
#include "server/http/message.h"

namespace baton {

/// The object in a request's body, which has at most `max_values` values: as text they take a few bytes, in memory many.
/// Errors: too_large, invalid_request; unavailable once `is_cancelled` says that nobody waits for it (empty: never).
Result<json::Value> parse_body(const HttpRequest& request, std::int64_t max_values,
                               const std::function<bool()>& is_cancelled = {});

/// 200 with `body`.
HttpResponse json_response(const json::Value& body);
/// The response for an error. Errors of the server are logged.
HttpResponse logged_error_response(const Error& error);

}  // namespace baton
