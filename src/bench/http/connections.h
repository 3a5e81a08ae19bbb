/// Many TCP connections to one server on one thread, at little cost: plain sockets and epoll.
#pragma once

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

namespace baton {

/// The parts of a server's URL.
struct ServerAddress {
  std::string host;
  std::uint16_t port = 80;
  std::string path = {};  ///< "/v2" of "http://host/v2/"; empty if there is none

  std::string authority() const;  ///< "host:port", for the Host header
};

/// Reads "http://HOST[:PORT][/PATH]"; HOST may be an IPv6 address in brackets. Errors (invalid_request) name the URL.
Result<ServerAddress> parse_server_address(const std::string& url);

/// A file descriptor, closed at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();
  int number() const { return number_; }

 private:
  int number_;
};

/// A fixed number of connections, by index. None is open at first; `send` opens one. Thread: one at a time.
class Connections {
 public:
  using Clock = std::chrono::steady_clock;

  /// What happened on a connection. Its bytes are valid until the call that reports it returns.
  struct News {
    std::size_t connection = 0;
    std::string_view bytes;
    std::string end;         ///< not empty: the connection is closed, and this says why
    bool is_closed = false;  ///< closed by the server in order; `end` says so too
    Clock::time_point at;    ///< when the wait ended that brought it
  };

  /// Looks up the host; of several addresses it takes the first that accepts a connection. Errors: not_found (no such
  /// host), invalid_request (more connections than open files are allowed).
  static Result<Connections> create(const ServerAddress& address, std::size_t n_connections);

  std::size_t size() const { return connections_.size(); }
  bool is_open(std::size_t index) const { return connections_[index].socket.number() >= 0; }

  /// Sends `request`, whose bytes must stay until the answer has begun. Connects first if the connection is not open. A
  /// failure is reported by the next wait.
  void send(std::size_t index, std::string_view request);
  void close(std::size_t index);

  /// Waits until something happens or until `until`, to about 0.1 ms, and reports what happened. `on_news` may send and
  /// close. A connection that was closed reports nothing more.
  void wait(Clock::time_point until, const std::function<void(const News&)>& on_news);

 private:
  struct Connection {
    Descriptor socket;
    std::uint32_t generation = 0;  // tells a socket's events from those of the socket before it
    std::string_view unsent;
    bool is_connecting = false;
    bool waits_to_send = false;
  };
  struct Failure {
    std::size_t index;
    std::uint32_t generation;
    std::string why;
  };

  Connections() = default;
  void open(std::size_t index);
  void watch(std::size_t index, int operation, std::uint32_t events);
  void send_rest(std::size_t index);
  void take(std::size_t index, std::uint32_t events, Clock::time_point at, const std::function<void(const News&)>& on_news);
  void fail_later(std::size_t index, std::string why);
  void set_timer(Clock::time_point until);

  sockaddr_storage address_{};
  socklen_t address_size_ = 0;
  Descriptor epoll_;
  Descriptor timer_;  // epoll_wait counts in whole milliseconds, which is too coarse for arrivals
  Clock::time_point timer_at_ = Clock::time_point::max();
  std::vector<Connection> connections_;
  std::vector<Failure> failures_;
  std::vector<char> buffer_;
};

}  // namespace baton
