/// The clients' sockets and the event loop over them.
#include "apps/bench/stream_load.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/open_files.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::size_t kShownFaults = 10;

float ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<float, std::milli>(to - from).count();
}

/// A file descriptor, closed at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

struct Client {
  Descriptor socket;
  const std::string* request = nullptr;  // in flight
  std::size_t n_sent = 0;
  bool waits_to_send = false;
  std::optional<StreamCheck> check;  // of its answer
  Clock::time_point last_frame;      // or the start of the request
};

class Load {
 public:
  Load(const StreamLoad& load, sockaddr_storage address, socklen_t address_size)
      : load_(load), address_(address), address_size_(address_size), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    clients_.resize(static_cast<std::size_t>(load.n_clients));
  }

  StreamLoadResult run(const std::function<void(double)>& on_second) {
    begun_ = Clock::now();
    for (Client& client : clients_) begin(client);
    auto next_second = begun_ + std::chrono::seconds(1);
    std::array<epoll_event, 256> events{};
    while (n_open_ > 0 || !failed_.empty() || (clients_.empty() && !is_over(Clock::now()))) {
      const int n = ::epoll_wait(epoll_.number(), events.data(), static_cast<int>(events.size()), 200);
      const auto now = Clock::now();
      for (int i = 0; i < n; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        take(clients_[event.data.u32], event.events, now);
      }
      if (now < next_second) continue;
      next_second += std::chrono::seconds(1);
      on_second(std::chrono::duration<double>(now - begun_).count());
      each_second(now);
    }
    result_.seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
    return std::move(result_);
  }

 private:
  bool is_over(Clock::time_point now) const {
    return now - begun_ >= std::chrono::duration<double>(load_.seconds) ||
           (load_.n_requests > 0 && result_.n_requests >= load_.n_requests);
  }

  void watch(Client& client, int operation, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u32 = static_cast<std::uint32_t>(&client - clients_.data());
    ::epoll_ctl(epoll_.number(), operation, client.socket.number(), &event);
  }

  /// Sends the next request, on a new connection if there is none. Sends nothing if the load is over.
  void begin(Client& client) {
    const auto now = Clock::now();
    if (is_over(now)) {
      client.socket = Descriptor();
      return;
    }
    ++n_open_;
    client.request = &load_.requests[static_cast<std::size_t>(result_.n_requests++) % load_.requests.size()];
    client.n_sent = 0;
    client.check.emplace(load_.expected);
    client.last_frame = now;
    if (client.socket.number() >= 0) return send(client);
    client.socket = Descriptor(::socket(address_.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (client.socket.number() < 0) return blame(client, fmt::format("cannot open a socket: {}", std::strerror(errno)));
    const int on = 1;
    ::setsockopt(client.socket.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const auto* address = static_cast<const sockaddr*>(static_cast<const void*>(&address_));
    if (::connect(client.socket.number(), address, address_size_) != 0 && errno != EINPROGRESS)
      return blame(client, fmt::format("cannot connect: {}", std::strerror(errno)));
    client.waits_to_send = true;
    watch(client, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
  }

  void send(Client& client) {
    while (client.n_sent < client.request->size()) {
      const ssize_t n = ::send(client.socket.number(), client.request->data() + client.n_sent,
                               client.request->size() - client.n_sent, MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN) return blame(client, fmt::format("cannot send: {}", std::strerror(errno)));
      if (n < 0) break;
      client.n_sent += static_cast<std::size_t>(n);
    }
    const bool waits = client.n_sent < client.request->size();
    if (waits != std::exchange(client.waits_to_send, waits)) watch(client, EPOLL_CTL_MOD, waits ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }

  void take(Client& client, std::uint32_t events, Clock::time_point now) {
    if (client.check && client.waits_to_send && (events & EPOLLOUT) != 0) send(client);
    if (!client.check || (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
    const ssize_t n = ::recv(client.socket.number(), buffer_.data(), buffer_.size(), 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) return blame(client, fmt::format("the connection broke: {}", std::strerror(errno)));
    if (n == 0) return blame(client, "the server closed the connection before the answer's end");
    const bool is_first = client.check->n_frames() == 0;
    if (client.check->push(std::string_view(buffer_.data(), static_cast<std::size_t>(n))) > 0) {
      (is_first ? result_.first_token_ms : result_.gap_ms).push_back(ms_between(client.last_frame, now));
      client.last_frame = now;
    }
    if (!client.check->fault().empty()) return blame(client, client.check->fault());
    if (!client.check->is_done()) return;
    ++result_.n_whole;
    count(client);
    begin(client);
  }

  /// The current request has ended, with or without a fault.
  void count(Client& client) {
    --n_open_;
    result_.n_frames += client.check->n_frames();
    result_.n_tokens += client.check->n_tokens();
    const std::int64_t n_lost = client.check->n_lost();
    (n_lost > 0 ? result_.n_lost : result_.n_extra) += std::abs(n_lost);
    client.check.reset();
  }

  void blame(Client& client, const std::string& fault) {
    ++result_.n_faults;
    if (result_.faults.size() < kShownFaults)
      result_.faults.push_back(fmt::format("client {} after {:.1f} s: {}", &client - clients_.data(),
                                           ms_between(begun_, Clock::now()) / 1e3F, fault));
    count(client);
    client.socket = Descriptor();
    failed_.push_back(&client);
  }

  void each_second(Clock::time_point now) {
    for (Client& client : clients_)
      if (client.check && now - client.last_frame >= std::chrono::duration<double>(load_.silence_s))
        blame(client, fmt::format("nothing came for {:.0f} s", load_.silence_s));
    for (Client* client : std::exchange(failed_, {})) begin(*client);
  }

  const StreamLoad& load_;
  sockaddr_storage address_;
  socklen_t address_size_;
  Descriptor epoll_;
  std::vector<Client> clients_;
  std::array<char, kReadBytes> buffer_{};
  StreamLoadResult result_;
  Clock::time_point begun_;
  std::int64_t n_open_ = 0;      // running requests
  std::vector<Client*> failed_;  // connect again within a second, not at once: the cause may persist
};

}  // namespace

Result<StreamLoadResult> run_stream_load(const StreamLoad& load, const std::function<void(double)>& on_second) {
  constexpr std::size_t kOwnFiles = 64;
  const auto n_clients = static_cast<std::size_t>(load.n_clients);
  if (const std::size_t n_files = allow_open_files(n_clients + kOwnFiles); n_files < n_clients + kOwnFiles)
    return fail(ErrorCode::invalid_request, fmt::format("{} clients need {} open files; this process may have {} (ulimit -n)",
                                                        load.n_clients, n_clients + kOwnFiles, n_files));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(load.host.c_str(), std::to_string(load.port).c_str(), &hints, &found); error != 0)
    return fail(ErrorCode::not_found, fmt::format("the host '{}' is unknown: {}", load.host, ::gai_strerror(error)));
  sockaddr_storage address{};
  std::memcpy(&address, found->ai_addr, found->ai_addrlen);
  const socklen_t address_size = found->ai_addrlen;
  ::freeaddrinfo(found);
  return Load(load, address, address_size).run(on_second);
}

}  // namespace baton
