/// A small HTTP server on loopback for tests of clients: one thread, one request per connection.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/check.h"

namespace baton::test {

struct ServerRequest {
  std::string method;
  std::string target;
  std::string head;  ///< request line and headers as received
};

struct ServerReply {
  int status = 200;
  std::string headers = {};                   ///< complete lines, each ending in "\r\n"
  std::string body = {};                      ///< its length is Content-Length; not sent for HEAD
  std::size_t cut_after = std::string::npos;  ///< bytes of the body after which the connection breaks
  bool stalls = false;                        ///< it does not break there: nothing comes until the client leaves
};

class HttpServer {
 public:
  using Handler = std::function<ServerReply(const ServerRequest&)>;

  explicit HttpServer(Handler handler)
      : handler_(std::move(handler)), socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 && ::listen(socket_, 8) == 0,
          "HttpServer: no port");
    socklen_t size = sizeof(address);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer() {
    ::shutdown(socket_, SHUT_RDWR);  // ends a waiting accept
    thread_.join();
    ::close(socket_);
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  /// The requests so far.
  std::vector<ServerRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    for (int client; (client = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0; ::close(client)) {
      std::string head;
      char buffer[4096];
      for (ssize_t count;
           head.find("\r\n\r\n") == std::string::npos && (count = ::recv(client, buffer, sizeof(buffer), 0)) > 0;)
        head.append(buffer, static_cast<std::size_t>(count));
      ServerRequest request{head.substr(0, head.find(' ')), "", head};
      request.target = head.substr(request.method.size() + 1);
      request.target.resize(request.target.find(' '));
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      const ServerReply reply = handler_(request);
      std::string bytes = "HTTP/1.1 " + std::to_string(reply.status) +
                          " Status\r\nConnection: close\r\nContent-Length: " + std::to_string(reply.body.size()) + "\r\n" +
                          reply.headers + "\r\n";
      if (request.method != "HEAD") bytes += reply.body.substr(0, reply.cut_after);
      for (std::size_t n_sent = 0; n_sent < bytes.size();) {
        const ssize_t count = ::send(client, bytes.data() + n_sent, bytes.size() - n_sent, MSG_NOSIGNAL);
        if (count <= 0) break;
        n_sent += static_cast<std::size_t>(count);
      }
      while (reply.stalls && ::recv(client, buffer, sizeof(buffer), 0) > 0) {
      }
    }
  }

  const Handler handler_;
  const int socket_;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<ServerRequest> requests_;
  std::thread thread_;
};

}  // namespace baton::test
