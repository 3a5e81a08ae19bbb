/// Fuzzes the code that a connection reaches: bytes, cut into pieces, go through the HTTP parser, and its requests
/// through their validation. The first byte is the size of a piece.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/check.h"
#include "server/http/cors.h"
#include "server/http/parser.h"
#include "server/request/generation.h"

namespace {

/// Reads one request from the front of `bytes`. Returns the number of unread bytes; nullopt if it is incomplete or
/// refused.
std::optional<baton::HttpRequest> read_request(std::string_view bytes, std::size_t piece, const baton::HttpLimits& limits) {
  baton::HttpParser parser(limits);
  std::string input;
  while (!bytes.empty() && !parser.is_done() && !parser.refusal()) {
    input += bytes.substr(0, piece);
    bytes.remove_prefix(std::min(piece, bytes.size()));
    const std::size_t n_taken = parser.put(input);
    baton::check(n_taken <= input.size(), "more bytes taken than there are");
    input.erase(0, n_taken);
    if (!parser.refusal()) baton::check(input.size() <= limits.max_header_bytes || parser.is_done(), "bytes pile up");
    parser.take_expects_continue();
  }
  if (parser.refusal())
    baton::check(parser.refusal()->status >= 400 && !parser.refusal()->message.empty(), "a refusal says why");
  if (!parser.is_done()) return std::nullopt;
  return parser.take();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  baton::HttpLimits limits;
  limits.max_header_bytes = 512;
  limits.max_header_count = 16;
  limits.max_body_bytes = 4096;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto request = read_request(bytes, data[0] == 0 ? 256 : data[0], limits);
  if (!request) return 0;
  baton::check(request->body.size() <= limits.max_body_bytes, "a body over the limit");
  baton::check(request->headers.size() <= limits.max_header_count, "headers over the limit");
  for (const auto& [name, value] : baton::cors_headers({}, *request))
    baton::check(value.find_first_of("\r\n") == std::string::npos, "a header that ends the header");
  const auto body = baton::json::parse(request->body, "the body");
  if (!body) return 0;
  (void)baton::parse_chat_request(*body, {}, {1000, 20});
  (void)baton::parse_completion_request(*body, {}, {1000, 20});
  return 0;
}
