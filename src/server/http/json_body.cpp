/// Parsing bodies, and answers in JSON.
#include "server/http/json_body.h"

#include <fmt/format.h>

#include "core/log.h"
#include "core/one_line.h"
#include "io/json_parse.h"
#include "server/http/error_body.h"

namespace baton {

std::int64_t count_json_values(std::string_view text) {
  std::int64_t n = 1;
  bool is_in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_string && c == '\\')
      ++i;
    else if (c == '"')
      is_in_string = !is_in_string;
    else if (!is_in_string && (c == ',' || c == '[' || c == '{'))
      ++n;
  }
  return n;
}

Result<json::Value> parse_body(const HttpRequest& request, std::int64_t max_values, const std::function<bool()>& is_cancelled) {
  if (const std::int64_t n = count_json_values(request.body); n > max_values)
    return fail(ErrorCode::too_large,
                fmt::format("the request body has {} JSON values; this server accepts {}", n, max_values));
  BATON_TRY(json::Value body, json::parse_exact(request.body, "the request body", is_cancelled));
  if (!body.is_object())
    return fail(ErrorCode::invalid_request,
                fmt::format("the request body must be a JSON object, not {}", json::describe_type(body)));
  return body;
}

HttpResponse json_response(const json::Value& body) { return {200, {{"Content-Type", "application/json"}}, json::dump(body)}; }

HttpResponse logged_error_response(const Error& error) {
  const HttpResponse response = error_response(error);
  if (response.status >= 500)
    log::warning("event=request_refused status={} reason={}", response.status, log_value(error.message));
  return response;
}

}  // namespace baton
