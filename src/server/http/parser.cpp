/// The request parser, over Boost.Beast's, with a sentence for each limit.
#include "server/http/parser.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <boost/beast/http/rfc7230.hpp>

namespace baton {
namespace {

namespace http = boost::beast::http;

/// Every chunked body that is not at its end has this many bytes to come, "0\r\n\r\n" at least. With fewer, after a
/// last chunk whose trailer is incomplete, an assertion of the library ends the program where assertions are on.
constexpr std::size_t kLeastChunkedBytes = 5;

/// The path of a target, and the query after it.
std::pair<std::string_view, std::string_view> parts_of(std::string_view target) {
  if (target.starts_with("http://") || target.starts_with("https://")) {
    const auto slash = target.find('/', target.find("//") + 2);
    target = slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  const auto question = target.find('?');
  if (question == std::string_view::npos) return {target, {}};
  return {target.substr(0, question), target.substr(question + 1)};
}

/// Whether one of some fields of a header continues in the next line (obs-fold).
bool has_folded_line(std::string_view fields) {
  return fields.find("\n ") != std::string_view::npos || fields.find("\n\t") != std::string_view::npos;
}

}  // namespace

bool GrowingBody::reader::append(std::string_view bytes) {
  constexpr std::size_t kLeast = 1024;
  std::string& all = body_.bytes;
  const std::size_t size = all.size() + bytes.size();
  if (size > all.capacity()) {
    std::size_t capacity = std::max({size, 2 * all.size(), kLeast});
    if (body_.announced >= size) capacity = std::min(capacity, static_cast<std::size_t>(body_.announced));
    if (!body_.share.grow(static_cast<std::int64_t>(capacity) - body_.share.size())) return false;
    all.reserve(capacity);
  }
  all += bytes;
  return true;
}

HttpParser::HttpParser(const HttpLimits& limits, Budget* bodies, Budget* headers)
    : limits_(limits), bodies_(bodies), headers_(headers) {
  parser_.header_limit(static_cast<std::uint32_t>(limits.max_header_bytes));
  parser_.body_limit(limits.max_body_bytes);
}

void HttpParser::refuse(boost::beast::error_code error) {
  if (error == boost::system::errc::not_enough_memory)
    return refuse(503, fmt::format("the bodies of the requests in hand have {} bytes; this server keeps {}", bodies_->used(),
                                   bodies_->limit()));
  if (error == http::error::body_limit) {
    const auto length = parser_.get()[http::field::content_length];
    if (!length.empty())
      return refuse(413, fmt::format("the request body has {} bytes; this server accepts {}",
                                     std::string_view(length.data(), length.size()), limits_.max_body_bytes));
    return refuse(413,
                  fmt::format("the request body has more than the {} bytes that this server accepts", limits_.max_body_bytes));
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return refuse(
        431, fmt::format("the request header has more than the {} bytes that this server accepts", limits_.max_header_bytes));
  if (error == http::error::bad_version) return refuse(505, "this server speaks HTTP/1.0 and HTTP/1.1");
  refuse(400, fmt::format("the request is not valid HTTP: {}", error.message()));
}

/// Checks a complete header: too many fields, contradicting lengths (request smuggling), a body to ask for.
void HttpParser::check_header() {
  is_header_done_ = true;
  const auto& header = parser_.get();
  const auto n_fields = static_cast<std::size_t>(std::distance(header.begin(), header.end()));
  if (n_fields > limits_.max_header_count)
    return refuse(431,
                  fmt::format("the request has {} header fields; this server accepts {}", n_fields, limits_.max_header_count));
  if (header.count(http::field::content_length) > 0 && header.count(http::field::transfer_encoding) > 0)
    return refuse(400, "the request is not valid HTTP: it has both Content-Length and Transfer-Encoding");
  if (header.count(http::field::transfer_encoding) > 0 && header.version() < 11)
    return refuse(400, "the request is not valid HTTP: HTTP/1.0 has no Transfer-Encoding");
  if (header.count(http::field::transfer_encoding) > 0 &&
      !boost::beast::iequals(header[http::field::transfer_encoding], "chunked"))
    return refuse(501, "the only Transfer-Encoding that this server knows is chunked");
  if (header.version() >= 11 && header.count(http::field::host) != 1)
    return refuse(400, "the request is not valid HTTP: HTTP/1.1 asks for one Host field");
  expects_continue_ = boost::beast::iequals(header[http::field::expect], "100-continue");
  if (!take_header_share())
    return refuse(503, fmt::format("the headers of the requests in hand have {} bytes; this server keeps {}", headers_->used(),
                                   headers_->limit()));
  if (bodies_ != nullptr) parser_.get().body().share = bodies_->share();
  read_head();
}

/// Takes what the library's fields and those of the request have: each text twice, and what surrounds it.
bool HttpParser::take_header_share() {
  constexpr std::int64_t kFieldBytes = 128;
  if (headers_ == nullptr) return true;
  std::int64_t n_bytes = static_cast<std::int64_t>(2 * parser_.get().target().size());
  for (const auto& field : parser_.get())
    n_bytes += static_cast<std::int64_t>(2 * (field.name_string().size() + field.value().size())) + kFieldBytes;
  request_.header_share = headers_->share();
  return request_.header_share.grow(n_bytes);
}

/// Reads the request line and the header into the request.
void HttpParser::read_head() {
  const auto& message = parser_.get();
  request_.method = std::string(message.method_string());
  const auto [path, query] = parts_of({message.target().data(), message.target().size()});
  request_.path = std::string(path);
  request_.query = std::string(query);
  request_.headers.reserve(static_cast<std::size_t>(std::distance(message.begin(), message.end())));
  for (const auto& field : message) {
    const auto name = field.name_string();
    const auto value = field.value();
    request_.headers.emplace_back(std::string(name.data(), name.size()), std::string(value.data(), value.size()));
  }
  request_.is_http_1_0 = message.version() < 11;
  request_.keep_alive = message.keep_alive();
}

std::string_view HttpParser::path() const {
  const auto target = parser_.get().target();
  return parts_of({target.data(), target.size()}).first;
}

std::optional<std::uint64_t> HttpParser::n_remaining() const {
  if (is_done_) return 0;
  const auto length = parser_.content_length_remaining();
  if (!length) return std::nullopt;
  return *length;
}

std::size_t HttpParser::put(std::string_view bytes, bool stops_behind_header) {
  std::size_t n_taken = 0;
  while (!refusal_ && !is_done_ && n_taken < bytes.size()) {
    boost::beast::error_code error;
    const std::string_view rest = bytes.substr(n_taken);
    if (is_header_done_ && parser_.chunked() && rest.size() < kLeastChunkedBytes) break;
    const std::size_t n_put = parser_.put(boost::asio::buffer(rest.data(), rest.size()), error);
    n_taken += n_put;
    const bool needs_more = error == http::error::need_more;
    if (error && !needs_more) {
      refuse(error);
      break;
    }
    // RFC 9112, section 5.2: a server refuses them or replaces them by spaces. Others on the way may read two fields.
    // The library takes whole fields.
    if (!is_header_done_ && has_folded_line(rest.substr(0, n_put))) {
      refuse(400, "the request is not valid HTTP: a header field continues in the next line");
      break;
    }
    if (parser_.is_header_done() && !is_header_done_) {
      check_header();
      parser_.eager(true);
      is_done_ = !refusal_ && parser_.is_done();
      if (stops_behind_header) break;
    }
    is_done_ = !refusal_ && parser_.is_done();
    if (!needs_more) continue;
    // A chunk header or trailer without an end: the library would wait forever.
    if (!refusal_ && bytes.size() - n_taken > limits_.max_header_bytes) refuse(http::error::header_limit);
    break;
  }
  return n_taken;
}

bool HttpParser::take_expects_continue() {
  const bool expects = expects_continue_ && is_header_done_ && !is_done_ && !refusal_;
  if (is_header_done_) expects_continue_ = false;
  return expects;
}

HttpRequest HttpParser::take() {
  GrowingBody::value_type& body = parser_.get().body();
  request_.body = std::move(body.bytes);
  request_.body_share = std::move(body.share);
  return std::move(request_);
}

}  // namespace baton
