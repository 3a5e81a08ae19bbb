/// One connection: requests in, answers out, in order, within limits.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "server/http_parser.h"

namespace baton {

using HttpSocket = boost::asio::generic::stream_protocol::socket;

class HttpServer;

/// A connection over TCP or a Unix socket, with TLS or without.
///
/// Requests are taken one after another: the next is parsed when the answer before it has been handed to the socket. While an
/// answer is on its way the session reads on, so that it sees the client leave. Owned by the server; it asks to be removed when
/// it is closed and no operation is under way. Thread: the I/O thread.
class HttpSession {
 public:
  /// `tls`: nullptr for a plain connection.
  HttpSession(HttpServer& server, HttpSocket socket, boost::asio::ssl::context* tls, const HttpLimits& limits);

  void start();
  /// In place of start: answers before anything is read, and closes.
  void turn_away(const HttpRefusal& refusal);
  /// A part of the answer to the current exchange, to be written by `write` together with those before and after it.
  void send(HttpOutput output);
  /// Begins to write what was sent, unless a write is under way: that goes on with it.
  void write();
  /// Closes when the deadline of what it waits for has passed.
  void check_deadline(std::chrono::steady_clock::time_point now);
  /// Closes if it waits for a request that has not begun.
  void close_if_idle();
  void close();

 private:
  enum class State { handshaking, reading, answering, flushing, lingering, closed };
  using TlsStream = boost::asio::ssl::stream<HttpSocket>;

  HttpSocket& socket();
  void set_deadline(std::int64_t timeout_ms);
  void begin_request();
  void parse();
  void dispatch();
  void refuse(const HttpRefusal& refusal);
  void read();
  void on_read(boost::system::error_code error, std::size_t n_bytes);
  void queue(std::string bytes);
  void on_write(boost::system::error_code error, std::size_t n_bytes);
  void on_flushed();
  void finish_answer();
  void linger();
  void send_head(const HttpResponse& response, bool is_stream);
  void operation_ended();

  HttpServer& server_;
  HttpLimits limits_;
  std::variant<HttpSocket, TlsStream> stream_;
  State state_ = State::handshaking;
  std::chrono::steady_clock::time_point deadline_;
  std::chrono::steady_clock::time_point write_deadline_;

  std::optional<HttpParser> parser_;
  bool has_request_begun_ = false;
  bool is_body_deadline_set_ = false;
  std::string input_;  // received, not parsed
  std::vector<char> read_buffer_;
  std::deque<std::string> unsent_;
  std::size_t unsent_bytes_ = 0;  // of which the front's first sent_bytes_ are gone
  std::size_t sent_bytes_ = 0;
  int n_operations_ = 0;  // asynchronous operations that hold `this`
  bool is_reading_ = false;
  bool is_writing_ = false;

  ExchangeId exchange_;   // the current one
  bool is_head_ = false;  // of the current request: an answer without body
  bool is_http_1_0_ = false;
  bool keep_alive_ = true;
  bool is_chunked_ = false;
};

}  // namespace baton
