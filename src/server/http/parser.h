/// Parses the bytes of a connection into one HTTP request, within limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <boost/beast/http/parser.hpp>

#include "server/http/message.h"

namespace baton {

/// Why a request was refused while it was parsed.
struct HttpRefusal {
  int status = 400;
  std::string message;
};

/// A body for Boost.Beast that grows with the bytes that have arrived, not with the announced length. Each growth is
/// taken from a budget first; the error not_enough_memory says that the budget is used up.
struct GrowingBody {
  struct value_type {
    std::string bytes;
    BudgetShare share;
    std::uint64_t announced = 0;  ///< Content-Length; 0 if there is none
  };

  class reader {
   public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>& /*header*/, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>& length, boost::beast::error_code& error) {
      body_.announced = length.value_or(0);
      error = {};
    }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, boost::beast::error_code& error) {
      error = {};
      std::size_t n_bytes = 0;
      for (auto at = boost::asio::buffer_sequence_begin(buffers); at != boost::asio::buffer_sequence_end(buffers); ++at) {
        const boost::asio::const_buffer buffer = *at;
        if (!append({static_cast<const char*>(buffer.data()), buffer.size()})) {
          error = boost::system::errc::make_error_code(boost::system::errc::not_enough_memory);
          break;
        }
        n_bytes += buffer.size();
      }
      return n_bytes;
    }
    void finish(boost::beast::error_code& error) { error = {}; }

   private:
    bool append(std::string_view bytes);
    value_type& body_;
  };
};

/// Reads one request. Thread: one at a time.
class HttpParser {
 public:
  /// `bodies` and `headers` are what these take their bytes from; they must outlive the request. Null: no limit.
  explicit HttpParser(const HttpLimits& limits, Budget* bodies = nullptr, Budget* headers = nullptr);

  /// Consumes bytes from the front of `bytes` and returns how many. Pass the others again, followed by more, unless
  /// the request is done or refused.
  std::size_t put(std::string_view bytes) { return put(bytes, /*stops_behind_header=*/false); }
  /// The same, up to the end of the header.
  std::size_t put_header(std::string_view bytes) { return put(bytes, /*stops_behind_header=*/true); }

  bool is_header_done() const { return is_header_done_; }
  /// The request without its body, once the header is done.
  const HttpRequest& head() const { return request_; }
  /// The path of the request line, also of a request that is refused before its header is done; empty without a line. Until
  /// the next call.
  std::string_view path() const;
  /// Bytes of the body that are still to come; nullopt if the header does not say.
  std::optional<std::uint64_t> n_remaining() const;
  bool is_done() const { return is_done_; }
  const std::optional<HttpRefusal>& refusal() const { return refusal_; }
  /// Whether the client waits for "100 Continue" before it sends the body. True once at most.
  bool take_expects_continue();
  /// The request, once it is done. The last call.
  HttpRequest take();

 private:
  std::size_t put(std::string_view bytes, bool stops_behind_header);
  void check_header();
  bool take_header_share();
  void read_head();
  void refuse(int status, std::string message) { refusal_ = HttpRefusal{status, std::move(message)}; }
  void refuse(boost::beast::error_code error);

  HttpLimits limits_;
  Budget* bodies_ = nullptr;
  Budget* headers_ = nullptr;
  boost::beast::http::request_parser<GrowingBody> parser_;
  HttpRequest request_;  // without the body
  bool is_header_done_ = false;
  bool is_done_ = false;
  bool expects_continue_ = false;
  std::optional<HttpRefusal> refusal_;
};

}  // namespace baton
