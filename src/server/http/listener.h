/// The address that a server listens on: a port, or a Unix socket with the lock that keeps other servers off it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>

#include "core/result.h"
#include "io/file_lock.h"

namespace baton {

/// Where to listen. A Unix socket (`uds`) takes the place of host and port.
struct HttpAddress {
  std::string host = {};      ///< a name or an address; empty: all interfaces
  std::uint16_t port = 8000;  ///< 0: any free one
  std::string uds = {};
  std::string ssl_keyfile = {};   ///< PEM; with a certificate the server speaks TLS
  std::string ssl_certfile = {};  ///< PEM, the chain
};

/// Where a connection comes from, as --max-connections-per-address counts: an IPv4 address, or the first half of an IPv6
/// address, because one client may have any number of these. Empty for a Unix socket.
std::string client_address(const boost::asio::generic::stream_protocol::socket& socket);

/// Binds one address and listens on it. The server that binds a Unix socket holds the lock PATH.lock until its end, so
/// that another server never takes a socket that is bound and does not listen yet for a leftover. The socket is removed
/// at the end; the lock file stays. Thread: one at a time.
class HttpListener {
 public:
  using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;

  explicit HttpListener(boost::asio::io_context& io) : io_(io), acceptor_(io) {}
  ~HttpListener();
  HttpListener(const HttpListener&) = delete;
  HttpListener& operator=(const HttpListener&) = delete;

  /// Takes the address; connections are still refused. Errors (io) are one sentence.
  Result<void> bind(const HttpAddress& address);
  /// From now on connections are queued for the acceptor, which does not block. Errors: io.
  Result<void> listen();

  Acceptor& acceptor() { return acceptor_; }
  bool is_unix() const { return !uds_.empty(); }
  /// "http://127.0.0.1:8000" or "unix:/path".
  const std::string& name() const { return name_; }
  /// 0 for a Unix socket.
  std::uint16_t port() const { return port_; }

 private:
  Result<void> bind_unix(const std::string& path);
  Result<void> bind_tcp(const HttpAddress& address);

  boost::asio::io_context& io_;
  Acceptor acceptor_;
  std::string name_;
  std::uint16_t port_ = 0;
  std::string uds_;
  std::optional<FileLock> lock_;  // of the Unix socket
};

}  // namespace baton
