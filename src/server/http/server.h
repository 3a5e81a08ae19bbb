/// The HTTP server: a bound address, its connections, and the one I/O thread that handles them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "core/limits/memory_reserve.h"
#include "core/result.h"
#include "server/http/connection_table.h"
#include "server/http/json_body.h"
#include "server/http/listener.h"
#include "server/http/message.h"

namespace boost::asio::ssl {
class context;
}

namespace baton {

class HttpSession;

/// Functions that the server calls on the I/O thread. They must not wait.
struct HttpCallbacks {
  std::function<void(ExchangeId, HttpRequest, std::shared_ptr<Ticket>)> on_request;
  /// How errors are written for a request of which only the path is known. Empty: as the OpenAI API writes them.
  std::function<const ErrorForm&(std::string_view path)> errors_of = {};
  /// A header has arrived: looks up what it asks for, once. Not null. Empty: tickets without an owner.
  std::function<std::shared_ptr<Ticket>(const HttpRequest& head)> look_up = {};
  /// Refuses the request before its body is read, or completes its ticket. Empty: none is refused.
  std::function<std::optional<HttpResponse>(const HttpRequest& head, Ticket& ticket)> check_header = {};
  /// The client left before its answer was complete. The rest is not needed. Must not throw.
  std::function<void(ExchangeId)> on_gone;
  /// The client has taken most of a piece that asked for more. Empty: no piece asks.
  std::function<void(ExchangeId)> on_writable = {};
  /// Called for SIGTERM and SIGINT. Empty: signals are not handled.
  std::function<void()> on_signal;
};

/// Accepts connections and turns them into exchanges. When connections or files are short, idle connections are closed for
/// new ones; without those, new ones get answers to health checks only. Memory is bounded: that of bodies and of answers that wait for their
/// clients by budgets of all connections, the rest by HttpLimits times the number of connections. A request for which
/// memory cannot be allocated is given up.
///
/// Thread: any for `deliver`, `is_io_thread`, `address` and `port`; the others belong to the owner.
class HttpServer {
 public:
  /// Binds the address without listening, so that an address in use is reported before a model is loaded, and
  /// connections are still refused. Errors (io) are one sentence; files that are no key or certificate are
  /// invalid_data.
  static Result<std::unique_ptr<HttpServer>> bind(const HttpAddress& address, const HttpLimits& limits);
  ~HttpServer();

  /// Opens the port and starts the I/O thread. Once.
  Result<void> start(HttpCallbacks callbacks);
  /// Refuses connections, sends unfinished answers for at most `flush_ms`, and ends the I/O thread. Idempotent.
  void stop(std::int64_t flush_ms);

  /// "http://127.0.0.1:8000" or "unix:/path".
  const std::string& address() const { return listener_.name(); }
  /// 0 for a Unix socket.
  std::uint16_t port() const { return listener_.port(); }

  /// Whether the caller is the I/O thread.
  bool is_io_thread() { return io_.get_executor().running_in_this_thread(); }

  /// What all connections take together. Thread: any.
  Budgets& budgets() { return budgets_; }
  /// Thread: any.
  const ConnectionCounts& connection_counts() const { return room_.counts(); }

  /// Takes parts of answers, in order. Parts of ended exchanges are dropped. If it throws std::bad_alloc, none is taken.
  void deliver(std::shared_ptr<std::vector<HttpOutput>> outputs);
  void deliver(HttpOutput output);
  /// Closes the connection of an answer that cannot be completed, some time later.
  void abandon(ExchangeId exchange);

 private:
  friend class HttpSession;
  using Clock = std::chrono::steady_clock;
  explicit HttpServer(const HttpLimits& limits);

  // For sessions, on the I/O thread.
  const ErrorForm& errors_of(std::string_view path) const;
  std::shared_ptr<Ticket> look_up(const HttpRequest& head) const;
  std::optional<HttpResponse> check_header(const HttpRequest& head, Ticket& ticket);
  ExchangeId begin_exchange(HttpSession& session);
  void hand_on(ExchangeId exchange, HttpRequest request, std::shared_ptr<Ticket> ticket) {
    callbacks_.on_request(exchange, std::move(request), std::move(ticket));
  }
  void end_exchange(ExchangeId exchange, bool is_client_gone) noexcept;
  void tell_writable(ExchangeId exchange) { callbacks_.on_writable(exchange); }
  std::span<char> read_buffer() { return read_buffer_; }
  bool is_closing() const { return is_closing_; }
  ConnectionRoom& room() { return room_; }
  void remove(HttpSession& session);

  void send(std::vector<HttpOutput>& outputs);
  HttpSession* session_of(ExchangeId exchange) const;
  HttpSession* session_at(ConnectionId connection) const;
  void begin_waits();
  void run();
  void begin_closing(std::int64_t flush_ms);
  void end_if_empty();
  void accept();
  bool makes_room_after(boost::system::error_code error);
  void accept_later(boost::system::error_code error);
  void admit(boost::asio::generic::stream_protocol::socket socket);
  void tick();
  void wait_for_signal();

  HttpLimits limits_;
  Budgets budgets_;
  MemoryReserve reserve_;  // of the I/O thread, in whose arena the small allocations of sessions are
  boost::asio::io_context io_{1};
  std::unique_ptr<boost::asio::ssl::context> tls_;  // null: connections are plain
  HttpListener listener_{io_};
  HttpCallbacks callbacks_;
  std::optional<boost::asio::signal_set> signals_;
  boost::asio::steady_timer accept_timer_{io_};
  boost::asio::steady_timer tick_timer_{io_};
  std::thread thread_;

  // The I/O thread's.
  ConnectionRoom room_;
  std::unordered_map<ConnectionId, std::unique_ptr<HttpSession>> sessions_;
  std::unordered_map<ExchangeId, HttpSession*> exchanges_;
  std::vector<char> read_buffer_;
  std::int64_t next_exchange_ = 0;
  bool is_accepting_ = false;
  bool is_ticking_ = false;
  bool is_waiting_for_signal_ = false;
  bool is_closing_ = false;
  Clock::time_point close_by_;
};

}  // namespace baton
