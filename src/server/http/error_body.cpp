/// The error body and its type names.
#include "server/http/error_body.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

}  // namespace baton
