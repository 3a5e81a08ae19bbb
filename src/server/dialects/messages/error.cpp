/// The names of errors, and bodies of the other dialect.
#include "server/dialects/messages/error.h"

#include <utility>

#include <fmt/format.h>

#include "server/http/error_body.h"
#include "server/request/stamp.h"

namespace baton {
namespace {

using json::Value;

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

}  // namespace

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

}  // namespace baton
