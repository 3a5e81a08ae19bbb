/// Accepting, TLS and the table of exchanges.
#include "server/http/server.h"

#include <algorithm>
#include <csignal>

#include <fmt/format.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>

#include "core/attempt.h"
#include "core/check.h"
#include "core/limits/insist.h"
#include "core/limits/open_files.h"
#include "core/log.h"
#include "core/thread_name.h"
#include "server/http/session.h"

namespace baton {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::int64_t kTickMs = 200;
constexpr std::size_t kReadBytes = 16 * 1024;
constexpr std::size_t kReserved = 64;   // connections beyond the limits, for health checks
constexpr std::size_t kSpareFiles = 8;  // descriptors kept for connections when there are no others
constexpr int kAcceptsPerEvent = 128;
constexpr std::size_t kOtherFiles = 64;  // files that the process opens besides connections
constexpr std::size_t kFilesBeside = kReserved + kSpareFiles + kOtherFiles;
constexpr std::size_t kReserveBytes = std::size_t{2} << 20;  // memory for the I/O thread, when there is no other
constexpr std::string_view kNoStop =
    "event=http_out_of_memory effect=\"the program ends: there is no memory to close connections\"";

/// Null without a key and a certificate.
Result<std::unique_ptr<asio::ssl::context>> make_tls(const HttpAddress& address) {
  if (address.ssl_keyfile.empty() && address.ssl_certfile.empty()) return nullptr;
  if (address.ssl_certfile.empty()) return fail(ErrorCode::invalid_request, "--ssl-keyfile needs --ssl-certfile");
  const std::string& key = address.ssl_keyfile.empty() ? address.ssl_certfile : address.ssl_keyfile;
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  error_code error;
  context->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, error);
  context->use_certificate_chain_file(address.ssl_certfile, error);
  if (error)
    return fail(ErrorCode::invalid_data, fmt::format("{} is not a PEM certificate: {}", address.ssl_certfile, error.message()));
  context->use_private_key_file(key, asio::ssl::context::pem, error);
  if (error)
    return fail(ErrorCode::invalid_data, fmt::format("{} is not a PEM key of that certificate: {}", key, error.message()));
  return context;
}

/// At most as many connections as the process may open files.
HttpLimits within_open_files(HttpLimits limits) {
  const std::size_t n_needed = limits.max_connections + kFilesBeside;
  const std::size_t n_files = allow_open_files(n_needed);
  if (n_files >= n_needed) return limits;
  limits.max_connections = std::max(n_files, kFilesBeside + 1) - kFilesBeside;
  log::warning("event=connections_limited max_connections={} reason=\"this process may open {} files (ulimit -n)\"",
               limits.max_connections, n_files);
  return limits;
}

}  // namespace

HttpServer::HttpServer(const HttpLimits& limits)
    : limits_(within_open_files(limits)),
      budgets_(limits_.budgets),
      reserve_(kReserveBytes),
      room_({limits_.max_connections, limits_.max_connections_per_address, kReserved,
             std::chrono::milliseconds(limits_.fresh_grace_ms)},
            kSpareFiles,
            {.has_unread_request =
                 [this](ConnectionId id) {
                   HttpSession* const session = session_at(id);
                   return session != nullptr && session->has_unread_request();
                 },
             .close =
                 [this](ConnectionId id) {
                   if (HttpSession* const session = session_at(id)) session->close();
                 }}),
      read_buffer_(kReadBytes) {}
HttpServer::~HttpServer() { stop(0); }

Result<std::unique_ptr<HttpServer>> HttpServer::bind(const HttpAddress& address, const HttpLimits& limits) {
  // With fewer, what the program opens later would fail in places that cannot say why.
  if (const std::size_t n_files = allow_open_files(kFilesBeside + 1); n_files <= kFilesBeside)
    return fail(
        ErrorCode::io,
        fmt::format("this process may open {} files (ulimit -n), and a server needs at least {}: {} for itself, and one for "
                    "each connection",
                    n_files, kFilesBeside + 1, kFilesBeside));
  std::unique_ptr<HttpServer> server;
  try {
    server.reset(new HttpServer(limits));
  } catch (const boost::system::system_error& error) {
    return fail(ErrorCode::io, fmt::format("a server cannot be made: {}", error.what()));
  }
  BATON_TRY(server->tls_, make_tls(address));
  BATON_TRY_VOID(server->listener_.bind(address));
  return server;
}

Result<void> HttpServer::start(HttpCallbacks callbacks) {
  check(!thread_.joinable(), "an HttpServer is started once");
  BATON_TRY_VOID(listener_.listen());
  callbacks_ = std::move(callbacks);
  if (callbacks_.on_signal) signals_.emplace(io_, SIGTERM, SIGINT);
  begin_waits();
  thread_ = std::thread([this] {
    name_this_thread("http");
    run();
  });
  return {};
}

void HttpServer::stop(std::int64_t flush_ms) {
  if (!thread_.joinable()) return;
  insist(kNoStop, [&] { asio::post(io_, [this, flush_ms] { begin_closing(flush_ms); }); });
  thread_.join();
  sessions_.clear();
}

void HttpServer::deliver(std::shared_ptr<std::vector<HttpOutput>> outputs) {
  asio::post(io_, [this, outputs = std::move(outputs)] { send(*outputs); });
}

void HttpServer::deliver(HttpOutput output) {
  const auto outputs = std::make_shared<std::vector<HttpOutput>>();
  outputs->push_back(std::move(output));
  deliver(outputs);
}

ExchangeId HttpServer::begin_exchange(HttpSession& session) {
  const ExchangeId id{next_exchange_++};
  exchanges_.emplace(id, &session);
  return id;
}

const ErrorForm& HttpServer::errors_of(std::string_view path) const {
  return callbacks_.errors_of ? callbacks_.errors_of(path) : kOpenaiErrors;
}

std::shared_ptr<Ticket> HttpServer::look_up(const HttpRequest& head) const {
  return callbacks_.look_up ? callbacks_.look_up(head) : std::make_shared<Ticket>();
}

/// Without memory only health checks are admitted.
std::optional<HttpResponse> HttpServer::check_header(const HttpRequest& head, Ticket& ticket) {
  reserve_.restore();
  if (!reserve_.is_held() && !ticket.is_health_check)
    return refusal_in(*ticket.errors, 503, "this server has no memory left for new requests");
  return callbacks_.check_header ? callbacks_.check_header(head, ticket) : std::nullopt;
}

void HttpServer::end_exchange(ExchangeId exchange, bool is_client_gone) noexcept {
  exchanges_.erase(exchange);
  if (is_client_gone) callbacks_.on_gone(exchange);
}

void HttpServer::remove(HttpSession& session) {
  sessions_.erase(session.id());
  if (is_closing_) end_if_empty();
}

void HttpServer::abandon(ExchangeId exchange) {
  asio::post(io_, [this, exchange] {
    if (HttpSession* const session = session_of(exchange)) session->close();
  });
}

/// Gives outputs to their sessions. One write sends all parts of a session that came one after another.
void HttpServer::send(std::vector<HttpOutput>& outputs) {
  HttpSession* last = nullptr;
  for (HttpOutput& output : outputs) {
    HttpSession* const session = session_of(output.exchange);
    if (session == nullptr) continue;
    if (last != nullptr && last != session) last->write();
    session->send(std::move(output));
    last = session;
  }
  if (last != nullptr) last->write();
}

/// Null if the exchange has ended.
HttpSession* HttpServer::session_of(ExchangeId exchange) const {
  const auto found = exchanges_.find(exchange);
  return found == exchanges_.end() ? nullptr : found->second;
}

HttpSession* HttpServer::session_at(ConnectionId connection) const {
  const auto found = sessions_.find(connection);
  return found == sessions_.end() ? nullptr : found->second.get();
}

/// Waits for connections, time and signals, where nothing does so already: each of these waits begins the next one itself,
/// unless it found no memory.
void HttpServer::begin_waits() {
  if (!is_ticking_) tick();
  if (!is_accepting_ && !is_closing_) accept();
  if (signals_ && !is_waiting_for_signal_) wait_for_signal();
}

/// Handles events until the server stops. An allocation that failed outside of a session's own work costs one event.
void HttpServer::run() {
  const MemoryReserve::User user(reserve_);
  const auto handle_events = [this] {
    begin_waits();
    io_.run();
  };
  while (!attempt(handle_events)) log::warning("event=out_of_memory open_connections={}", sessions_.size());
}

/// Accepts no more, and closes idle sessions.
void HttpServer::begin_closing(std::int64_t flush_ms) {
  is_closing_ = true;
  close_by_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(flush_ms);
  error_code ignored;
  listener_.acceptor().close(ignored);
  for (const auto& [id, session] : sessions_) session->close_if_idle();
  end_if_empty();
}

void HttpServer::end_if_empty() {
  if (sessions_.empty()) io_.stop();
}

/// Waits for a connection before it accepts it: without a free descriptor accepting fails although there is none.
void HttpServer::accept() {
  listener_.acceptor().async_wait(HttpListener::Acceptor::wait_read, [this](error_code error) {
    is_accepting_ = false;
    if (is_closing_ || error == asio::error::operation_aborted) return;
    // Several at a time: when thousands arrive, one for each round of events would let the backlog overflow. Only the
    // first is known to be there, so an error of a later one means nothing.
    for (int i = 0; i < kAcceptsPerEvent && !error; ++i) {
      if (i > 0 && !room_.has_reserve()) break;  // those in the reserve get their answers first
      HttpSocket socket(io_);
      listener_.acceptor().accept(socket, error);
      if (error && i > 0) return accept();
      if (error) break;
      admit(std::move(socket));
    }
    if (error && !makes_room_after(error)) return accept_later(error);
    accept();
  });
  is_accepting_ = true;
}

/// Whether accepting may succeed now, because a descriptor was freed for it or because the client has given up.
bool HttpServer::makes_room_after(error_code error) {
  if (error == asio::error::connection_aborted || error == asio::error::would_block) return true;
  if (error != asio::error::no_descriptors && error != boost::system::errc::too_many_files_open_in_system) return false;
  return room_.free_file(Clock::now());
}

/// Connections wait in the backlog meanwhile.
void HttpServer::accept_later(error_code error) {
  log::warning("event=accept_failed reason=\"{}\" open_connections={}", error.message(), sessions_.size());
  accept_timer_.expires_after(std::chrono::milliseconds(100));
  accept_timer_.async_wait([this](error_code cancelled) {
    is_accepting_ = false;
    if (!cancelled && !is_closing_) accept();
  });
  is_accepting_ = true;
}

/// Starts a session. Without room it is a reserved one, which gets answers to health checks only.
void HttpServer::admit(HttpSocket socket) {
  const auto now = Clock::now();
  const std::string address = limits_.max_connections_per_address > 0 ? client_address(socket) : std::string();
  const std::optional<Shortage> shortage = room_.make_room(address, now);
  if (!shortage) return;
  error_code ignored;
  if (!listener_.is_unix()) socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  auto session = std::make_unique<HttpSession>(*this, address, *shortage, std::move(socket), tls_.get(), limits_);
  const ConnectionId id = session->id();
  sessions_.emplace(id, std::move(session)).first->second->start();
}

void HttpServer::tick() {
  tick_timer_.expires_after(std::chrono::milliseconds(kTickMs));
  tick_timer_.async_wait([this](error_code cancelled) {
    is_ticking_ = false;
    if (cancelled) return;
    tick();
    const auto now = Clock::now();
    room_.tick(now);
    reserve_.restore();
    const bool is_over = is_closing_ && now >= close_by_;
    for (auto next = sessions_.begin(); next != sessions_.end();) {
      HttpSession& session = *(next++)->second;  // check_deadline may remove it
      if (is_over) session.close();
      session.check_deadline(now);
    }
  });
  is_ticking_ = true;
}

void HttpServer::wait_for_signal() {
  signals_->async_wait([this](error_code cancelled, int) {
    is_waiting_for_signal_ = false;
    if (cancelled) return;
    callbacks_.on_signal();
    wait_for_signal();
  });
  is_waiting_for_signal_ = true;
}

}  // namespace baton
