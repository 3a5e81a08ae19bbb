/// Parses the bytes of a connection into one HTTP request, within limits.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "server/http_message.h"

namespace baton {

/// Why a request was refused while it was parsed.
struct HttpRefusal {
  int status = 400;
  std::string message;
};

/// Reads one request. Thread: one at a time.
class HttpParser {
 public:
  explicit HttpParser(const HttpLimits& limits);

  /// Consumes bytes from the front of `bytes` and returns how many. Pass the others again, followed by more, unless
  /// the request is done or refused.
  std::size_t put(std::string_view bytes);

  bool is_header_done() const { return is_header_done_; }
  bool is_done() const { return is_done_; }
  const std::optional<HttpRefusal>& refusal() const { return refusal_; }
  /// Whether the client waits for "100 Continue" before it sends the body. True once at most.
  bool take_expects_continue();
  /// The request, once it is done. The last call.
  HttpRequest take();

 private:
  void check_header();
  void refuse(int status, std::string message) { refusal_ = HttpRefusal{status, std::move(message)}; }
  void refuse(boost::beast::error_code error);

  HttpLimits limits_;
  boost::beast::http::request_parser<boost::beast::http::string_body> parser_;
  bool is_header_done_ = false;
  bool is_done_ = false;
  bool expects_continue_ = false;
  std::optional<HttpRefusal> refusal_;
};

}  // namespace baton
