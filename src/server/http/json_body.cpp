/// Parsing bodies, and answers in JSON.
#include "server/http/json_body.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/log.h"
#include "core/one_line.h"
#include "io/json_parse.h"

namespace baton {
namespace {

constexpr std::size_t kMaxMessageBytes = 2048;

/// A message that may quote what a client sent, for instance by a template's raise_exception: cut between two characters.
std::string shortened(std::string_view message) {
  if (message.size() <= kMaxMessageBytes) return std::string(message);
  std::size_t end = kMaxMessageBytes;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0U) == 0x80U) --end;
  return fmt::format("{}... ({} bytes)", message.substr(0, end), message.size());
}

std::string_view error_type(int status) {
  switch (status) {
    case 401: return "AuthenticationError";
    case 403: return "PermissionDeniedError";
    case 404: return "NotFoundError";
    case 429: return "RateLimitError";
    case 500: return "InternalServerError";
    case 501: return "NotImplementedError";
    case 503: return "ServiceUnavailableError";
    default: return "BadRequestError";
  }
}

}  // namespace

void JsonObjectWriter::key(std::string_view name) {
  out_ += std::exchange(is_empty_, false) ? "\"" : ",\"";
  out_ += name;
  out_ += "\":";
}

void JsonObjectWriter::add(std::string_view name, const json::Value& value) {
  key(name);
  out_ += json::dump(value);
}

Resumable write_json_characters(std::string_view text, std::string& out) {
  constexpr std::size_t kStepBytes = 16 << 10;
  while (!text.empty()) {
    std::size_t n = std::min(kStepBytes, text.size());
    while (n < text.size() && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) ++n;  // after a whole character
    const std::string part = json::dump(text.substr(0, n));
    out.append(part, 1, part.size() - 2);
    text.remove_prefix(n);
    if (!text.empty()) co_await Resumable::pause();
  }
}

Resumable write_json_string(std::string_view text, std::string& out) {
  out += '"';
  for (Resumable characters = write_json_characters(text, out); characters.resume();) co_await Resumable::pause();
  out += '"';
}

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_request: return 400;
    case ErrorCode::not_found: return 404;
    case ErrorCode::too_large: return 413;
    case ErrorCode::unsupported: return 501;
    case ErrorCode::unavailable: return 503;
    case ErrorCode::invalid_data:
    case ErrorCode::out_of_memory:
    case ErrorCode::io:
    case ErrorCode::internal: return 500;
  }
  return 500;
}

std::string short_list(std::span<const std::string> names) {
  constexpr std::size_t kShown = 10;
  if (names.empty()) return "none";
  const std::string first = fmt::format("{}", fmt::join(names.first(std::min(names.size(), kShown)), ", "));
  return names.size() <= kShown ? first : fmt::format("{}, ... and {} more", first, names.size() - kShown);
}

json::Value error_body(int status, std::string_view message, std::string_view param) {
  const bool is_too_long = status == 400 && message.starts_with(kContextLengthSentence);
  return {{"error",
           {{"message", shortened(message)},
            {"type", error_type(status)},
            {"param", param.empty() ? json::Value() : json::Value(param)},
            {"code", is_too_long ? json::Value("context_length_exceeded") : json::Value(status)}}}};
}

HttpResponse error_response(int status, std::string_view message, std::string_view param) {
  HttpResponse response{status, {{"Content-Type", "application/json"}}, json::dump(error_body(status, message, param))};
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

HttpResponse error_response(const Error& error) { return error_response(http_status(error.code), error.message, error.param); }

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
