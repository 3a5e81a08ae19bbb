/// Sockets, epoll and a timer.
#include "bench/http/connections.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include "core/open_files.h"

namespace baton {
namespace {

constexpr std::size_t kReceiveBytes = 64 * 1024;
constexpr std::size_t kOtherFiles = 64;  ///< that the process has open beside the connections
constexpr std::uint64_t kTimerEvent = ~std::uint64_t{0};

/// The first address that accepts a connection, so that "localhost" finds a server that listens on one of its two
/// addresses only; the first of all if none does.
const addrinfo& reachable(const addrinfo& first) {
  for (const addrinfo* each = &first; each != nullptr && first.ai_next != nullptr; each = each->ai_next) {
    const Descriptor socket(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.number() >= 0 && ::connect(socket.number(), each->ai_addr, each->ai_addrlen) == 0) return *each;
  }
  return first;
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

std::string ServerAddress::authority() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

Result<ServerAddress> parse_server_address(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const auto refuse = [&] {
    return fail(ErrorCode::invalid_request, fmt::format("the URL must be http://HOST:PORT, not '{}'", url));
  };
  if (!url.starts_with(kScheme)) return refuse();
  std::string_view rest = std::string_view(url).substr(kScheme.size());
  ServerAddress address;
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  address.path = rest.substr(slash);
  while (address.path.ends_with('/')) address.path.pop_back();
  rest = rest.substr(0, slash);
  const std::size_t bracket = rest.starts_with('[') ? rest.find(']') : 0;
  if (bracket == std::string_view::npos) return refuse();
  const std::size_t colon = rest.find(':', bracket);
  address.host = bracket > 0 ? rest.substr(1, bracket - 1) : rest.substr(0, colon);
  if (address.host.empty()) return refuse();
  if (colon == std::string_view::npos) return address;
  const std::string_view port = rest.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size() || address.port == 0) return refuse();
  return address;
}

Result<Connections> Connections::create(const ServerAddress& address, std::size_t n_connections) {
  if (const std::size_t n_files = allow_open_files(n_connections + kOtherFiles); n_files < n_connections + kOtherFiles)
    return fail(ErrorCode::invalid_request, fmt::format("{} clients need {} open files; this process may have {} (ulimit -n)",
                                                        n_connections, n_connections + kOtherFiles, n_files));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found); error != 0)
    return fail(ErrorCode::not_found, fmt::format("the host '{}' is unknown: {}", address.host, ::gai_strerror(error)));
  Connections made;
  const addrinfo& chosen = reachable(*found);
  std::memcpy(&made.address_, chosen.ai_addr, chosen.ai_addrlen);
  made.address_size_ = chosen.ai_addrlen;
  ::freeaddrinfo(found);
  made.epoll_ = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  made.timer_ = Descriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kTimerEvent;
  if (::epoll_ctl(made.epoll_.number(), EPOLL_CTL_ADD, made.timer_.number(), &event) != 0)
    return fail(ErrorCode::io, fmt::format("cannot wait for connections: {}", std::strerror(errno)));
  made.connections_.resize(n_connections);
  made.buffer_.resize(kReceiveBytes);
  return made;
}

void Connections::close(std::size_t index) {
  connections_[index].socket = Descriptor();
  ++connections_[index].generation;
}

void Connections::fail_later(std::size_t index, std::string why) {
  failures_.push_back({index, connections_[index].generation, std::move(why)});
}

void Connections::watch(std::size_t index, int operation, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = (std::uint64_t{connections_[index].generation} << 32) | index;
  ::epoll_ctl(epoll_.number(), operation, connections_[index].socket.number(), &event);
}

void Connections::send(std::size_t index, std::string_view request) {
  connections_[index].unsent = request;
  if (is_open(index)) return send_rest(index);
  open(index);
}

void Connections::open(std::size_t index) {
  Connection& connection = connections_[index];
  connection.socket = Descriptor(::socket(address_.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int socket = connection.socket.number();
  if (socket < 0) return fail_later(index, fmt::format("cannot open a socket: {}", std::strerror(errno)));
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const auto* address = static_cast<const sockaddr*>(static_cast<const void*>(&address_));
  if (::connect(socket, address, address_size_) != 0 && errno != EINPROGRESS)
    return fail_later(index, fmt::format("cannot connect: {}", std::strerror(errno)));
  connection.is_connecting = true;
  connection.waits_to_send = true;
  watch(index, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
}

void Connections::send_rest(std::size_t index) {
  Connection& connection = connections_[index];
  while (!connection.unsent.empty()) {
    const ssize_t n = ::send(connection.socket.number(), connection.unsent.data(), connection.unsent.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) return fail_later(index, fmt::format("cannot send: {}", std::strerror(errno)));
    connection.unsent.remove_prefix(static_cast<std::size_t>(n));
  }
  const bool waits = !connection.unsent.empty();
  if (waits != std::exchange(connection.waits_to_send, waits))
    watch(index, EPOLL_CTL_MOD, waits ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void Connections::set_timer(Clock::time_point until) {
  if (until == timer_at_) return;
  timer_at_ = until;
  itimerspec when{};  // all zero: off
  if (until != Clock::time_point::max()) {
    constexpr std::int64_t kSecond = 1'000'000'000;
    const std::int64_t ns =
        std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(until.time_since_epoch()).count(), 1);
    when.it_value = {ns / kSecond, ns % kSecond};
  }
  ::timerfd_settime(timer_.number(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void Connections::wait(Clock::time_point until, const std::function<void(const News&)>& on_news) {
  std::array<epoll_event, 256> events{};
  const bool is_due = !failures_.empty() || until <= Clock::now();
  if (!is_due) set_timer(until);
  const int n = ::epoll_wait(epoll_.number(), events.data(), static_cast<int>(events.size()), is_due ? 0 : -1);
  const auto at = Clock::now();
  for (Failure& failure : std::exchange(failures_, {})) {
    if (connections_[failure.index].generation != failure.generation) continue;
    close(failure.index);
    on_news({failure.index, {}, std::move(failure.why), false, at});
  }
  for (int i = 0; i < n; ++i) {
    const std::uint64_t data = events[static_cast<std::size_t>(i)].data.u64;
    if (data == kTimerEvent) {
      set_timer(Clock::time_point::max());
      continue;
    }
    const auto index = static_cast<std::size_t>(data & 0xffffffff);
    if (is_open(index) && connections_[index].generation == data >> 32)
      take(index, events[static_cast<std::size_t>(i)].events, at, on_news);
  }
}

void Connections::take(std::size_t index, std::uint32_t events, Clock::time_point at,
                       const std::function<void(const News&)>& on_news) {
  Connection& connection = connections_[index];
  const auto end = [&](std::string why, bool is_closed) {
    close(index);
    on_news({index, {}, std::move(why), is_closed, at});
  };
  if (connection.is_connecting && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) {
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(connection.socket.number(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return end(fmt::format("cannot connect: {}", std::strerror(error)), false);
    connection.is_connecting = false;
  }
  if (connection.waits_to_send && (events & EPOLLOUT) != 0) send_rest(index);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  const ssize_t n = ::recv(connection.socket.number(), buffer_.data(), buffer_.size(), 0);
  if (n < 0 && errno == EAGAIN) return;
  if (n < 0) return end(fmt::format("the connection broke: {}", std::strerror(errno)), false);
  if (n == 0) return end("the server closed the connection before the answer's end", true);
  on_news({index, std::string_view(buffer_.data(), static_cast<std::size_t>(n)), "", false, at});
}

}  // namespace baton
