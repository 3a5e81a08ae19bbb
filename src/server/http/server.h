/// The HTTP server: a bound address, its connections, and the one I/O thread that handles them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "server/http/connection_table.h"
#include "server/http/listener.h"
#include "server/http/message.h"
#include "server/http/ticket.h"

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
  /// The client left before its answer was complete. The rest is not needed.
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
  std::string address() const;
  /// 0 for a Unix socket.
  std::uint16_t port() const;

  /// Whether the caller is the I/O thread.
  bool is_io_thread() const;

  /// What all connections take together. Thread: any.
  Budgets& budgets();
  /// Thread: any.
  const ConnectionCounts& connection_counts() const;

  /// Takes parts of answers, in order. Parts of ended exchanges are dropped. If it throws std::bad_alloc, none is taken, and
  /// `outputs` is as before.
  void deliver(std::vector<HttpOutput>&& outputs);
  void deliver(HttpOutput output);
  /// Closes the connection of an answer that cannot be completed, some time later.
  void abandon(ExchangeId exchange);

 private:
  friend class HttpSession;
  class Impl;
  HttpServer();

  // For sessions, on the I/O thread.
  const ErrorForm& errors_of(std::string_view path) const;
  std::shared_ptr<Ticket> look_up(const HttpRequest& head);
  std::optional<HttpResponse> check_header(const HttpRequest& head, Ticket& ticket);
  ExchangeId begin_exchange(HttpSession& session, HttpRequest request, std::shared_ptr<Ticket> ticket);
  void end_exchange(ExchangeId exchange, bool is_client_gone) noexcept;
  std::span<char> read_buffer();
  void tell_writable(ExchangeId exchange);
  bool is_closing() const;
  void set_phase(ConnectionId connection, ConnectionPhase phase);
  void refused(Shortage shortage);
  void closed(ConnectionId connection);
  void remove(HttpSession& session);

  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
