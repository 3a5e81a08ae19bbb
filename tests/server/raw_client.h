/// A client over a plain loopback socket, for tests that send requests which no HTTP library would send.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

namespace baton {

/// One response as received.
struct RawResponse {
  int status = 0;
  std::string head;  ///< status line and headers
  std::string body;  ///< with chunks joined
  bool has(std::string_view text) const { return head.find(text) != std::string::npos; }
};

/// A connection. A read fails the test after nine minutes, before ctest ends it; this never decides the test's result otherwise.
class RawClient {
 public:
  static constexpr int kPatienceMs = 9 * 60'000;
  explicit RawClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  explicit RawClient(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    is_connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool is_connected() const { return is_connected_; }
  int socket() const { return socket_; }

  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }

  /// False if the server has closed the connection.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  /// Reads until the data contains `end`. Returns the data up to there.
  std::string read_until(std::string_view end) {
    std::size_t found;
    while ((found = input_.find(end)) == std::string::npos)
      if (!read_more()) return std::exchange(input_, {});
    return take(found + end.size());
  }
  std::string read_bytes(std::size_t n) {
    while (input_.size() < n)
      if (!read_more()) break;
    return take(std::min(n, input_.size()));
  }
  std::string read_to_end() {
    while (read_more()) {
    }
    return std::exchange(input_, {});
  }
  /// Whether the text has come, or the connection's end. Waits for nothing.
  bool has_come(std::string_view text) {
    while (input_.find(text) == std::string::npos) {
      pollfd ready{socket_, POLLIN, 0};
      if (::poll(&ready, 1, 0) != 1) return false;
      if (!read_more()) return true;
    }
    return true;
  }
  /// Whether the server closes the connection without sending more.
  bool is_closed_by_server() { return read_to_end().empty() && is_at_end_; }

  /// The next response. `has_body` is false for answers to HEAD.
  RawResponse read_response(bool has_body = true) {
    RawResponse response;
    response.head = read_until("\r\n\r\n");
    if (response.head.size() < 12) return response;
    response.status = std::atoi(response.head.c_str() + 9);
    if (!has_body || response.status == 204) return response;
    if (const auto length = response.head.find("Content-Length: "); length != std::string::npos) {
      response.body = read_bytes(static_cast<std::size_t>(std::atoll(response.head.c_str() + length + 16)));
    } else if (response.has("Transfer-Encoding: chunked")) {
      for (std::string chunk = read_chunk(); !chunk.empty(); chunk = read_chunk()) response.body += chunk;
    } else {
      response.body = read_to_end();
    }
    return response;
  }
  /// The data of the next chunk; empty for the last one.
  std::string read_chunk() {
    const std::string size = read_until("\r\n");
    std::string data = read_bytes(static_cast<std::size_t>(std::strtoll(size.c_str(), nullptr, 16)));
    read_until("\r\n");
    return data;
  }

  RawResponse get(std::string_view path) {
    send("GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n\r\n");
    return read_response();
  }
  void send_post(std::string_view path, std::string_view body, std::string_view headers = "") {
    send("POST " + std::string(path) + " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + std::string(headers) + "\r\n" + std::string(body));
  }
  RawResponse remove(std::string_view path) {
    send("DELETE " + std::string(path) + " HTTP/1.1\r\nHost: h\r\n\r\n");
    return read_response();
  }
  RawResponse post(std::string_view path, std::string_view body, std::string_view headers = "") {
    send_post(path, body, headers);
    return read_response();
  }

 private:
  std::string take(std::size_t n) {
    std::string taken = input_.substr(0, n);
    input_.erase(0, n);
    return taken;
  }
  bool read_more() {
    pollfd ready{socket_, POLLIN, 0};
    if (::poll(&ready, 1, kPatienceMs) != 1) {
      ADD_FAILURE() << "the server sent nothing for nine minutes; so far: " << input_;
      return false;
    }
    char buffer[65536];
    const ssize_t n = ::recv(socket_, buffer, sizeof(buffer), 0);
    is_at_end_ = n <= 0;
    if (is_at_end_) return false;
    input_.append(buffer, static_cast<std::size_t>(n));
    return true;
  }

  int socket_ = -1;
  bool is_connected_ = false;
  bool is_at_end_ = false;
  std::string input_;
};

}  // namespace baton
