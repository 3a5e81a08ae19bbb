/// One connection: reads requests and writes answers, in order and within limits.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "core/attempt.h"
#include "server/http/connection_table.h"
#include "server/http/json_body.h"
#include "server/http/parser.h"

namespace baton {

using HttpSocket = boost::asio::generic::stream_protocol::socket;

class HttpServer;

/// A connection over TCP or a Unix socket, with TLS or without.
///
/// It handles requests one after another: it parses the next one when the previous answer was handed to the socket.
/// While an answer is being sent the session keeps reading, so that it notices when the client leaves. A client that has
/// shut down its side of a plain connection still gets the answer. The server owns
/// it; a closed session asks for its removal when no operation is pending.
///
/// Public functions do not throw. Without memory for a part of its work, the session fails the request that is being read with a
/// 503, or closes. Thread: the I/O thread.
class HttpSession {
 public:
  /// `tls`: nullptr for a plain connection.
  /// Takes its place in the server's room, and leaves it when it is closed. With a shortage there is no room for this connection:
  /// one health check is answered, any other request refused.
  HttpSession(HttpServer& server, const std::string& address, Shortage shortage, HttpSocket socket,
              boost::asio::ssl::context* tls, const HttpLimits& limits);
  ~HttpSession();

  ConnectionId id() const { return id_; }
  /// The session may be gone afterwards.
  void start();
  /// Adds a part of the answer to the current exchange. `write` writes it together with the parts around it.
  void send(HttpOutput output);
  /// Starts writing the added parts. A write that is already running continues with them.
  void write();
  /// Closes if the deadline of the current wait has passed. Asks for its removal if it is closed and nothing is pending.
  void check_deadline(std::chrono::steady_clock::time_point now);
  /// Whether no request has begun and bytes have arrived that were not read yet.
  bool has_unread_request();
  /// Closes if no request has begun.
  void close_if_idle();
  void close() noexcept;

 private:
  enum class State { handshaking, reading, answering, flushing, lingering, closed };
  enum class Arrival { none, header, body };  ///< what of the request being read is arriving
  enum class Version { http_1_0, http_1_1 };
  enum class Body { of_known_length, chunked, none };  ///< how the body of an answer is sent; none: the request was HEAD
  enum class Due { head, body };                       ///< the next part of the answer
  enum class Afterwards { next_request, end };         ///< what follows the answer
  enum class Sender { goes_on, waits };                ///< of the answer; it waits until most of it is written
  using TlsStream = boost::asio::ssl::stream<HttpSocket>;
  using Stream = std::variant<HttpSocket, TlsStream>;

  HttpSocket& socket();
  void set_deadline(std::int64_t timeout_ms);
  void begin_handshake(TlsStream& tls);
  void begin_reading(std::int64_t timeout_ms);
  void begin_request(std::int64_t timeout_ms);
  void parse();
  bool has_room();
  bool refuse_by_header();
  void dispatch();
  const ErrorForm& errors() const;
  void refuse(const HttpRefusal& refusal) { refuse(refusal, errors()); }
  void refuse(const HttpRefusal& refusal, const ErrorForm& form);
  void answer_at_once(HttpResponse response);
  template <class Act>
  void work(Act act);
  void give_up() noexcept;
  void refuse_for_memory();
  void read();
  void receive(boost::system::error_code error);
  void on_read(boost::system::error_code error, std::string_view bytes);
  void give_back_input();
  void on_end_of_input();
  void read_ahead();
  void drop_input(std::size_t n_bytes);
  std::optional<std::uint64_t> rest_of_request() const;
  void watch_for_reset();
  void begin_write();
  void add(HttpOutput output);
  void queue(std::string bytes);
  void on_write(boost::system::error_code error, std::size_t n_bytes);
  void on_flushed();
  void finish_answer();
  void linger();
  void wait_for_end();
  void note_head(const HttpRequest& request);
  void send_head(const HttpResponse& response, bool is_stream);
  template <class Act>
  void end_operation(Act act);
  void remove_if_done();

  HttpServer& server_;
  ConnectionId id_;
  HttpLimits limits_;
  Budgets& budgets_;
  Stream stream_;
  State state_ = State::handshaking;
  std::chrono::steady_clock::time_point deadline_;
  std::chrono::steady_clock::time_point write_deadline_;

  const Shortage shortage_;

  std::optional<HttpParser> parser_;
  std::shared_ptr<Ticket> ticket_;  // of the request being read, once its header is here
  std::int64_t n_requests_ = 0;     // that have begun
  Arrival arrival_ = Arrival::none;
  std::string input_;             // received, not parsed
  BudgetShare input_share_;       // of input_, from the budget of headers
  std::vector<char> tls_buffer_;  // of a connection with TLS; the others read into the server's
  std::deque<std::string> unsent_;
  std::size_t unsent_bytes_ = 0;  // not counting sent_bytes_ of the first part
  BudgetShare unsent_share_;      // of unsent_bytes_
  std::size_t sent_bytes_ = 0;
  int n_operations_ = 0;  // asynchronous operations that hold `this`; their handlers call end_operation
  bool is_reading_ = false;
  bool is_writing_ = false;
  bool is_watching_ = false;
  bool has_input_ended_ = false;                // the client sends no more
  std::optional<std::uint64_t> n_to_drop_ = 0;  // of the last request, which was refused; nullopt: unknown
  std::size_t n_dropped_ = 0;
  std::chrono::steady_clock::time_point lingers_until_;

  // Of the current request and its answer.
  ExchangeId exchange_;
  Version version_ = Version::http_1_1;
  Body body_ = Body::of_known_length;
  Due due_ = Due::head;
  Afterwards afterwards_ = Afterwards::next_request;
  Sender sender_ = Sender::goes_on;
};

/// Does a part of the session's work. Without memory for it the request or the connection ends.
template <class Act>
void HttpSession::work(Act act) {
  if (!attempt(act)) give_up();
}

/// Does what the end of an operation leads to. The session may be gone afterwards.
template <class Act>
void HttpSession::end_operation(Act act) {
  work(act);
  --n_operations_;
  remove_if_done();
}

}  // namespace baton
