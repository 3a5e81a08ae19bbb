/// Binding ports and Unix sockets.
#include "server/http/listener.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>

namespace baton {
namespace {

namespace asio = boost::asio;
using ListenProtocol = asio::generic::stream_protocol;
using ListenError = boost::system::error_code;

// Linux allows no more by default (net.core.somaxconn). A client beyond it tries again after a second.
constexpr int kBacklog = 4096;

/// Removes the socket file of a killed server: it has no listener. The caller holds its lock; a server that has none
/// is asked by connecting.
void remove_stale_socket(asio::io_context& io, const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  asio::local::stream_protocol::socket probe(io);
  ListenError error;
  probe.connect(asio::local::stream_protocol::endpoint(path), error);
  if (error == asio::error::connection_refused) ::unlink(path.c_str());
}

ListenError bind_to(HttpListener::Acceptor& acceptor, const ListenProtocol& protocol, const ListenProtocol::endpoint& endpoint,
                    bool is_dual_stack) {
  ListenError error;
  acceptor.open(protocol, error);
  if (!error && protocol.family() != AF_UNIX) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error && is_dual_stack) acceptor.set_option(asio::ip::v6_only(false), error);
  if (!error) acceptor.bind(endpoint, error);
  if (error && acceptor.is_open()) {
    ListenError ignored;
    acceptor.close(ignored);
  }
  return error;
}

}  // namespace

HttpListener::~HttpListener() {
  if (is_unix()) ::unlink(uds_.c_str());
}

Result<void> HttpListener::bind(const HttpAddress& address) {
  return address.uds.empty() ? bind_tcp(address) : bind_unix(address.uds);
}

Result<void> HttpListener::bind_unix(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path))
    return fail(ErrorCode::io, fmt::format("the socket path '{}' has {} bytes; a Unix socket's has at most {}", path,
                                           path.size(), sizeof(sockaddr_un::sun_path) - 1));
  BATON_TRY(lock_, FileLock::try_acquire(path + ".lock"));
  if (!lock_)
    return fail(ErrorCode::io, fmt::format("cannot listen on the socket {}: another server holds {}.lock", path, path));
  remove_stale_socket(io_, path);
  const ListenError error =
      bind_to(acceptor_, asio::local::stream_protocol(), asio::local::stream_protocol::endpoint(path), false);
  if (error) return fail(ErrorCode::io, fmt::format("cannot listen on the socket {}: {}", path, error.message()));
  uds_ = path;
  name_ = "unix:" + path;
  return {};
}

Result<void> HttpListener::bind_tcp(const HttpAddress& address) {
  using asio::ip::tcp;
  std::vector<tcp::endpoint> candidates = {{tcp::v6(), address.port}, {tcp::v4(), address.port}};
  if (!address.host.empty()) {
    candidates.clear();
    ListenError error;
    for (const auto& found :
         tcp::resolver(io_).resolve(address.host, std::to_string(address.port), tcp::resolver::passive, error))
      candidates.push_back(found.endpoint());
    if (candidates.empty())
      return fail(ErrorCode::io, fmt::format("the host '{}' is unknown: {}", address.host, error.message()));
    // "localhost" has two addresses; programs that try only one of them try IPv4.
    std::ranges::stable_partition(candidates, [](const tcp::endpoint& endpoint) { return endpoint.address().is_v4(); });
  }
  ListenError first_error;
  for (const tcp::endpoint& candidate : candidates) {
    const bool is_dual_stack = address.host.empty() && candidate.address().is_v6();
    const ListenError error = bind_to(acceptor_, candidate.protocol(), candidate, is_dual_stack);
    // An address family that this machine lacks is not an error; a port in use is.
    if (!error) {
      tcp::endpoint local = candidate;
      const ListenProtocol::endpoint found = acceptor_.local_endpoint();
      std::copy_n(static_cast<const char*>(static_cast<const void*>(found.data())), found.size(),
                  static_cast<char*>(static_cast<void*>(local.data())));
      const std::string host = address.host.empty() ? "0.0.0.0" : address.host;
      const bool is_v6 = host.find(':') != std::string::npos;
      port_ = local.port();
      name_ = fmt::format("{}://{}{}{}:{}", address.ssl_certfile.empty() ? "http" : "https", is_v6 ? "[" : "", host,
                          is_v6 ? "]" : "", port_);
      return {};
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

std::string client_address(const boost::asio::generic::stream_protocol::socket& socket) {
  ListenError error;
  const ListenProtocol::endpoint remote = socket.remote_endpoint(error);
  if (error || (remote.protocol().family() != AF_INET && remote.protocol().family() != AF_INET6)) return {};
  asio::ip::tcp::endpoint endpoint;
  endpoint.resize(remote.size());
  std::copy_n(static_cast<const char*>(static_cast<const void*>(remote.data())), remote.size(),
              static_cast<char*>(static_cast<void*>(endpoint.data())));
  const asio::ip::address address = endpoint.address();
  if (address.is_v4()) return address.to_v4().to_string();
  const asio::ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) return asio::ip::make_address_v4(asio::ip::v4_mapped, v6).to_string();
  const auto bytes = v6.to_bytes();
  return {bytes.begin(), bytes.begin() + bytes.size() / 2};
}

Result<void> HttpListener::listen() {
  ListenError error;
  acceptor_.listen(kBacklog, error);
  if (!error) acceptor_.non_blocking(true, error);
  if (error) return fail(ErrorCode::io, fmt::format("cannot listen on {}: {}", name_, error.message()));
  return {};
}

}  // namespace baton
