/// Binding, accepting, TLS and the table of exchanges.
#include "server/http_server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <new>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "core/check.h"
#include "core/log.h"
#include "core/open_files.h"
#include "core/thread_name.h"
#include "server/http_session.h"

namespace baton {
namespace {

namespace asio = boost::asio;
using Protocol = asio::generic::stream_protocol;
using Acceptor = asio::basic_socket_acceptor<Protocol>;
using boost::system::error_code;

constexpr std::int64_t kTickMs = 200;
constexpr int kBacklog = 1024;
constexpr std::size_t kTurnedAway = 64;  // connections beyond the limit that may get an error answer at the same time
constexpr std::size_t kOtherFiles = 64;  // files that the process opens besides connections

/// The printed form of a bound address.
struct Bound {
  std::string name;
  std::uint16_t port = 0;
};

/// Whether a socket file is left over from a killed server: nobody listens on it.
void remove_stale_socket(asio::io_context& io, const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  asio::local::stream_protocol::socket probe(io);
  error_code error;
  probe.connect(asio::local::stream_protocol::endpoint(path), error);
  if (error == asio::error::connection_refused) ::unlink(path.c_str());
}

error_code bind_to(Acceptor& acceptor, const Protocol& protocol, const Protocol::endpoint& endpoint, bool is_dual_stack) {
  error_code error;
  acceptor.open(protocol, error);
  if (!error && protocol.family() != AF_UNIX) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error && is_dual_stack) acceptor.set_option(asio::ip::v6_only(false), error);
  if (!error) acceptor.bind(endpoint, error);
  if (error && acceptor.is_open()) {
    error_code ignored;
    acceptor.close(ignored);
  }
  return error;
}

Result<Bound> bind_unix(asio::io_context& io, Acceptor& acceptor, const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path))
    return fail(ErrorCode::io, fmt::format("the socket path '{}' has {} bytes; a Unix socket's has at most {}", path,
                                           path.size(), sizeof(sockaddr_un::sun_path) - 1));
  remove_stale_socket(io, path);
  const error_code error =
      bind_to(acceptor, asio::local::stream_protocol(), asio::local::stream_protocol::endpoint(path), false);
  if (error) return fail(ErrorCode::io, fmt::format("cannot listen on the socket {}: {}", path, error.message()));
  return Bound{"unix:" + path, 0};
}

Result<Bound> bind_tcp(asio::io_context& io, Acceptor& acceptor, const HttpAddress& address, std::string_view scheme) {
  using asio::ip::tcp;
  std::vector<tcp::endpoint> candidates = {{tcp::v6(), address.port}, {tcp::v4(), address.port}};
  if (!address.host.empty()) {
    candidates.clear();
    error_code error;
    for (const auto& found :
         tcp::resolver(io).resolve(address.host, std::to_string(address.port), tcp::resolver::passive, error))
      candidates.push_back(found.endpoint());
    if (candidates.empty())
      return fail(ErrorCode::io, fmt::format("the host '{}' is unknown: {}", address.host, error.message()));
    // "localhost" has two addresses; programs that try only one of them try IPv4.
    std::ranges::stable_partition(candidates, [](const tcp::endpoint& endpoint) { return endpoint.address().is_v4(); });
  }
  error_code first_error;
  for (const tcp::endpoint& candidate : candidates) {
    const bool is_dual_stack = address.host.empty() && candidate.address().is_v6();
    const error_code error = bind_to(acceptor, candidate.protocol(), candidate, is_dual_stack);
    // An address family that this machine lacks is not an error; a port in use is.
    if (!error) {
      tcp::endpoint local = candidate;
      const Protocol::endpoint found = acceptor.local_endpoint();
      std::copy_n(static_cast<const char*>(static_cast<const void*>(found.data())), found.size(),
                  static_cast<char*>(static_cast<void*>(local.data())));
      const std::string host = address.host.empty() ? "0.0.0.0" : address.host;
      const bool is_v6 = host.find(':') != std::string::npos;
      return Bound{fmt::format("{}://{}{}{}:{}", scheme, is_v6 ? "[" : "", host, is_v6 ? "]" : "", local.port()), local.port()};
    }
    if (!first_error || error == asio::error::address_in_use) first_error = error;
    if (error == asio::error::address_in_use) break;
  }
  const std::string where = address.host.empty() ? "" : " of " + address.host;
  if (first_error == asio::error::address_in_use)
    return fail(ErrorCode::io,
                fmt::format("port {}{} is in use by another program; choose another with --port", address.port, where));
  return fail(ErrorCode::io, fmt::format("cannot listen on port {}{}: {}", address.port, where, first_error.message()));
}

Result<std::optional<asio::ssl::context>> make_tls(const HttpAddress& address) {
  std::optional<asio::ssl::context> context;
  if (address.ssl_keyfile.empty() && address.ssl_certfile.empty()) return context;
  if (address.ssl_certfile.empty()) return fail(ErrorCode::invalid_request, "--ssl-keyfile needs --ssl-certfile");
  const std::string& key = address.ssl_keyfile.empty() ? address.ssl_certfile : address.ssl_keyfile;
  context.emplace(asio::ssl::context::tls_server);
  error_code error;
  context->set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, error);
  context->use_certificate_chain_file(address.ssl_certfile, error);
  if (error)
    return fail(ErrorCode::invalid_data, fmt::format("{} is no PEM certificate: {}", address.ssl_certfile, error.message()));
  context->use_private_key_file(key, asio::ssl::context::pem, error);
  if (error)
    return fail(ErrorCode::invalid_data, fmt::format("{} is no PEM key of that certificate: {}", key, error.message()));
  return context;
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(HttpServer& server, const HttpLimits& limits) : server_(server), limits_(limits), budgets_(limits.budgets) {}
  ~Impl() {
    stop(0);
    if (!uds_.empty()) ::unlink(uds_.c_str());
  }

  Result<void> bind(const HttpAddress& address) {
    limit_connections();
    BATON_TRY(tls_, make_tls(address));
    if (!address.uds.empty()) {
      BATON_TRY(bound_, bind_unix(io_, acceptor_, address.uds));
      uds_ = address.uds;
    } else {
      BATON_TRY(bound_, bind_tcp(io_, acceptor_, address, tls_ ? "https" : "http"));
    }
    return {};
  }

  Result<void> start(HttpCallbacks callbacks) {
    check(!thread_.joinable(), "an HttpServer is started once");
    error_code error;
    acceptor_.listen(kBacklog, error);
    if (error) return fail(ErrorCode::io, fmt::format("cannot listen on {}: {}", bound_.name, error.message()));
    callbacks_ = std::move(callbacks);
    if (callbacks_.on_signal) {
      signals_.emplace(io_, SIGTERM, SIGINT);
      wait_for_signal();
    }
    accept();
    tick();
    thread_ = std::thread([this] {
      name_this_thread("http");
      run();
    });
    return {};
  }

  void stop(std::int64_t flush_ms) {
    if (!thread_.joinable()) return;
    asio::post(io_, [this, flush_ms] {
      is_closing_ = true;
      close_by_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(flush_ms);
      error_code ignored;
      acceptor_.close(ignored);
      for (HttpSession* session : all_sessions()) session->close_if_idle();
      end_if_empty();
    });
    thread_.join();
    sessions_.clear();
  }

  void deliver(std::vector<HttpOutput> outputs) {
    asio::post(io_, [this, outputs = std::move(outputs)]() mutable {
      for (HttpOutput& output : outputs) {
        const auto found = exchanges_.find(output.exchange);
        if (found == exchanges_.end()) continue;
        HttpSession* const session = found->second;
        try {
          session->send(std::move(output));
        } catch (const std::bad_alloc&) {
          session->close();
        }
        if (sent_to_.empty() || sent_to_.back() != session) sent_to_.push_back(session);
      }
      // One write sends all parts that arrived for a session.
      for (HttpSession* session : sent_to_) session->write();
      sent_to_.clear();
    });
  }

  ExchangeId begin_exchange(HttpSession& session, HttpRequest request) {
    const ExchangeId id{next_exchange_++};
    exchanges_.emplace(id, &session);
    try {
      callbacks_.on_request(id, std::move(request));
    } catch (const std::bad_alloc&) {
      end_exchange(id, /*is_client_gone=*/true);
      throw;
    }
    return id;
  }

  std::optional<HttpResponse> judge(const HttpRequest& head) const {
    return callbacks_.judge ? callbacks_.judge(head) : std::nullopt;
  }

  void end_exchange(ExchangeId exchange, bool is_client_gone) {
    exchanges_.erase(exchange);
    if (is_client_gone) callbacks_.on_gone(exchange);
  }

  void remove(HttpSession& session) {
    sessions_.erase(&session);
    if (is_closing_) end_if_empty();
  }

  bool is_closing() const { return is_closing_; }
  bool is_io_thread() { return io_.get_executor().running_in_this_thread(); }
  const Bound& bound() const { return bound_; }
  Budgets& budgets() { return budgets_; }

 private:
  /// Handles events until the server stops. An allocation that failed outside of a session's own work costs one event.
  void run() {
    while (true) {
      try {
        io_.run();
        return;
      } catch (const std::bad_alloc&) {
        log::warning("event=out_of_memory open_connections={}", sessions_.size());
      }
    }
  }

  std::vector<HttpSession*> all_sessions() {
    std::vector<HttpSession*> all;
    all.reserve(sessions_.size());
    for (const auto& [session, owned] : sessions_) all.push_back(session);
    return all;
  }

  /// At most as many connections as the process may open files.
  void limit_connections() {
    const std::size_t n_needed = limits_.max_connections + kTurnedAway + kOtherFiles;
    const std::size_t n_files = allow_open_files(n_needed);
    if (n_files >= n_needed) return;
    limits_.max_connections = std::max(n_files, kTurnedAway + kOtherFiles + 1) - kTurnedAway - kOtherFiles;
    log::warning("event=connections_limited max_connections={} reason=\"this process may open {} files (ulimit -n)\"",
                 limits_.max_connections, n_files);
  }

  void end_if_empty() {
    if (sessions_.empty()) io_.stop();
  }

  void accept() {
    acceptor_.async_accept([this](error_code error, HttpSocket socket) {
      if (is_closing_ || error == asio::error::operation_aborted) return;
      if (error) return retry_accept(error);
      try {
        admit(std::move(socket));
      } catch (const std::bad_alloc&) {
        log::warning("event=connection_refused reason=\"out of memory\"");
      }
      accept();
    });
  }

  /// Out of file descriptors or memory: connections wait in the backlog meanwhile.
  void retry_accept(error_code error) {
    log::warning("event=accept_failed reason=\"{}\" open_connections={}", error.message(), sessions_.size());
    accept_timer_.expires_after(std::chrono::milliseconds(100));
    accept_timer_.async_wait([this](error_code cancelled) {
      if (!cancelled && !is_closing_) accept();
    });
  }

  void admit(HttpSocket socket) {
    const bool is_full = sessions_.size() >= limits_.max_connections;
    if (is_full) log::warning("event=connection_refused reason=\"{} connections are open\"", sessions_.size());
    if (sessions_.size() >= limits_.max_connections + kTurnedAway) return;
    error_code ignored;
    if (uds_.empty()) socket.set_option(asio::ip::tcp::no_delay(true), ignored);
    auto session = std::make_unique<HttpSession>(server_, std::move(socket), tls_ ? &*tls_ : nullptr, limits_, budgets_);
    HttpSession* const started = session.get();
    sessions_.emplace(started, std::move(session));
    if (!is_full) return started->start();
    started->turn_away({503, fmt::format("{} connections are open, which is this server's limit", limits_.max_connections)});
  }

  void tick() {
    tick_timer_.expires_after(std::chrono::milliseconds(kTickMs));
    tick_timer_.async_wait([this](error_code cancelled) {
      if (cancelled) return;
      tick();
      const auto now = std::chrono::steady_clock::now();
      const bool is_over = is_closing_ && now >= close_by_;
      for (HttpSession* session : all_sessions()) {
        if (is_over)
          session->close();
        else
          session->check_deadline(now);
      }
    });
  }

  void wait_for_signal() {
    signals_->async_wait([this](error_code cancelled, int) {
      if (cancelled) return;
      callbacks_.on_signal();
      wait_for_signal();
    });
  }

  HttpServer& server_;
  HttpLimits limits_;
  Budgets budgets_;
  asio::io_context io_{1};
  std::optional<asio::ssl::context> tls_;
  Acceptor acceptor_{io_};
  Bound bound_;
  std::string uds_;
  HttpCallbacks callbacks_;
  std::optional<asio::signal_set> signals_;
  asio::steady_timer accept_timer_{io_};
  asio::steady_timer tick_timer_{io_};
  std::thread thread_;

  // The I/O thread's.
  std::unordered_map<HttpSession*, std::unique_ptr<HttpSession>> sessions_;
  std::unordered_map<ExchangeId, HttpSession*> exchanges_;
  std::vector<HttpSession*> sent_to_;  // by `deliver`; kept for its memory
  std::int64_t next_exchange_ = 0;
  bool is_closing_ = false;
  std::chrono::steady_clock::time_point close_by_;
};

HttpServer::HttpServer() = default;
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::bind(const HttpAddress& address, const HttpLimits& limits) {
  std::unique_ptr<HttpServer> server(new HttpServer());
  server->impl_ = std::make_unique<Impl>(*server, limits);
  BATON_TRY_VOID(server->impl_->bind(address));
  return server;
}

Result<void> HttpServer::start(HttpCallbacks callbacks) { return impl_->start(std::move(callbacks)); }
void HttpServer::stop(std::int64_t flush_ms) { impl_->stop(flush_ms); }
std::string HttpServer::address() const { return impl_->bound().name; }
std::uint16_t HttpServer::port() const { return impl_->bound().port; }

Budgets& HttpServer::budgets() { return impl_->budgets(); }
bool HttpServer::is_io_thread() const { return impl_->is_io_thread(); }

void HttpServer::deliver(std::vector<HttpOutput> outputs) { impl_->deliver(std::move(outputs)); }

void HttpServer::deliver(HttpOutput output) {
  std::vector<HttpOutput> outputs;
  outputs.push_back(std::move(output));
  impl_->deliver(std::move(outputs));
}

std::optional<HttpResponse> HttpServer::judge(const HttpRequest& head) { return impl_->judge(head); }
ExchangeId HttpServer::begin_exchange(HttpSession& session, HttpRequest request) {
  return impl_->begin_exchange(session, std::move(request));
}
void HttpServer::end_exchange(ExchangeId exchange, bool is_client_gone) { impl_->end_exchange(exchange, is_client_gone); }
bool HttpServer::is_closing() const { return impl_->is_closing(); }
void HttpServer::remove(HttpSession& session) { impl_->remove(session); }

}  // namespace baton
