/// Connects the ranks. Everything here ends within start_timeout.
#include "ranks/rank_handshake.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <type_traits>

#include <fmt/format.h>

#include "core/check.h"
#include "core/log.h"

namespace baton {
namespace {

using HandshakeClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// A connection that says nothing for so long belongs to no rank.
constexpr milliseconds kHelloTimeout{2000};
constexpr milliseconds kRetryConnect{20};
/// How often rank 0 looks whether a rank that it waits for has been lost.
constexpr milliseconds kLookForLost{50};

template <std::size_t n>
using Text = std::array<char, n>;

template <std::size_t n>
Text<n> text_of(const std::string& value) {
  Text<n> text{};
  value.copy(text.data(), n - 1);
  return text;
}
template <std::size_t n>
std::string string_of(const Text<n>& text) {
  return {text.data(), ::strnlen(text.data(), n)};
}

constexpr auto kHelloMagic = std::to_array("BatonR1");

/// The first message of a rank.
struct Hello {
  Text<8> magic = kHelloMagic;
  std::int32_t rank = 0;
  std::int32_t world_size = 0;
  std::int64_t process = 0;
  Text<64> token{};
  Text<64> host{};
  Text<96> version{};
};
/// Rank 0's first answer.
struct Welcome {
  Text<8> magic = kHelloMagic;
  std::int64_t process = 0;
  Text<64> host{};
  Text<256> refusal{};  ///< empty: welcome
};
/// Rank 0's second answer, when all have come. The rank says whether it could attach (int32), then all begin.
struct Begin {
  std::int32_t is_shared = 0;  ///< all ranks are attached
  std::int32_t hang_timeout_ms = 0;
  std::array<std::int64_t, kMaxRanks> process_ids{};
};

std::string host_name() {
  Text<64> name{};
  ::gethostname(name.data(), name.size() - 1);
  return string_of(name);
}

void set_timeout(int socket, milliseconds timeout) {
  const timeval most{.tv_sec = timeout.count() / 1000, .tv_usec = timeout.count() % 1000 * 1000};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
}

template <class T>
bool send_value(int socket, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* bytes = reinterpret_cast<const char*>(&value);
  for (std::size_t n_sent = 0; n_sent < sizeof(T);) {
    const ssize_t n = ::send(socket, bytes + n_sent, sizeof(T) - n_sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    n_sent += static_cast<std::size_t>(n);
  }
  return true;
}

template <class T>
bool receive_value(int socket, T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  auto* bytes = reinterpret_cast<char*>(&value);
  for (std::size_t n_received = 0; n_received < sizeof(T);) {
    const ssize_t n = ::recv(socket, bytes + n_received, sizeof(T) - n_received, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    n_received += static_cast<std::size_t>(n);
  }
  return true;
}

/// The other end of an idle connection is gone.
bool is_closed(int socket) {
  char byte = 0;
  const ssize_t n = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void make_prompt(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

tl::unexpected<Error> no_group(std::string sentence) { return fail(ErrorCode::unavailable, std::move(sentence)); }

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first != nullptr) ::freeaddrinfo(first);
  }
};

addrinfo hints_of(int flags) {
  addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  return hints;
}

/// Nothing if one try failed; `why` then says how.
std::optional<RankSocket> connect_once(const std::string& address, std::uint16_t port, std::string& why) {
  const addrinfo hints = hints_of(AI_NUMERICSERV);
  AddressList found;
  if (const int code = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found.first); code != 0) {
    why = ::gai_strerror(code);
    return std::nullopt;
  }
  for (const addrinfo* each = found.first; each != nullptr; each = each->ai_next) {
    RankSocket socket(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.get() < 0) continue;
    set_timeout(socket.get(), kHelloTimeout);
    if (::connect(socket.get(), each->ai_addr, each->ai_addrlen) == 0) return socket;
    why = std::strerror(errno);
  }
  return std::nullopt;
}

/// Rank 0 while the others come.
class Host {
 public:
  Host(RankListener listener, const RankOptions& options)
      : options_(options), listening_(listener.release()), deadline_(HandshakeClock::now() + options.start_timeout) {
    peers_.resize(static_cast<std::size_t>(options.world_size));
    for (std::size_t r = 0; r < peers_.size(); ++r) peers_[r].rank = static_cast<int>(r);
  }

  Result<RankIntroduction> run() {
    while (const int missing = first_missing()) {
      BATON_TRY_VOID(look_for_lost());
      if (HandshakeClock::now() > deadline_)
        return no_group(fmt::format("rank {} of {} has not joined within {} s", missing, options_.world_size,
                                    options_.start_timeout.count() / 1000));
      pollfd ready{.fd = listening_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, static_cast<int>(kLookForLost.count())) > 0) BATON_TRY_VOID(accept_one());
    }
    return begin();
  }

 private:
  /// 0: all have come.
  int first_missing() const {
    const auto missing =
        std::find_if(peers_.begin() + 1, peers_.end(), [](const RankPeer& peer) { return peer.socket.get() < 0; });
    return missing == peers_.end() ? 0 : missing->rank;
  }

  Result<void> look_for_lost() const {
    if (options_.find_lost_rank) {
      if (const auto sentence = options_.find_lost_rank()) return no_group(*sentence);
    }
    for (const RankPeer& peer : peers_)
      if (peer.socket.get() >= 0 && is_closed(peer.socket.get()))
        return no_group(to_string(peer) + " ended before all ranks had joined");
    return {};
  }

  Result<void> accept_one() {
    RankSocket socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.get() < 0) return {};
    set_timeout(socket.get(), kHelloTimeout);
    Hello hello;
    if (!receive_value(socket.get(), hello) || hello.magic != kHelloMagic) {
      log::warning("event=rank_refused reason=\"a connection that is no rank's\"");
      return {};
    }
    Welcome welcome{.process = ::getpid(), .host = text_of<64>(host_name())};
    if (string_of(hello.token) != options_.token) {
      log::warning("event=rank_refused rank={} reason=\"it has another token\"", hello.rank);
      welcome.refusal = text_of<256>("rank 0 has another token (BATON_RANK_TOKEN)");
      send_value(socket.get(), welcome);
      return {};
    }
    const std::string refusal = why_not(hello);
    welcome.refusal = text_of<256>(refusal);
    send_value(socket.get(), welcome);  // a rank that has left is found by look_for_lost
    if (!refusal.empty()) return no_group(refusal);
    RankPeer& peer = peers_[static_cast<std::size_t>(hello.rank)];
    peer.process = hello.process;
    if (const std::string host = string_of(hello.host); host != host_name()) peer.host = host;
    peer.socket = std::move(socket);
    return {};
  }

  std::string why_not(const Hello& hello) const {
    if (const std::string version = string_of(hello.version); version != options_.version)
      return fmt::format("rank {} runs {}, and rank 0 {}", hello.rank, version, options_.version);
    if (hello.world_size != options_.world_size)
      return fmt::format("rank {} was started for {} ranks, and rank 0 for {}", hello.rank, hello.world_size,
                         options_.world_size);
    if (hello.rank < 1 || hello.rank >= options_.world_size)
      return fmt::format("rank {} has joined, and the ranks of {} are 0 to {}", hello.rank, options_.world_size,
                         options_.world_size - 1);
    if (peers_[static_cast<std::size_t>(hello.rank)].socket.get() >= 0)
      return fmt::format("two processes have joined as rank {}", hello.rank);
    return {};
  }

  /// Offers the memory, and lets all begin.
  Result<RankIntroduction> begin() {
    RankIntroduction made;
    BATON_TRY(made.memory, RankMemory::create(options_.world_size, options_.memory_bytes));
    Begin answer{.is_shared = options_.memory_bytes > 0 ? 1 : 0,
                 .hang_timeout_ms = static_cast<std::int32_t>(options_.hang_timeout.count())};
    made.hang_timeout = options_.hang_timeout;
    answer.process_ids[0] = ::getpid();
    const auto lost = [](const RankPeer& peer) { return no_group(to_string(peer) + " ended while the ranks met"); };
    for (RankPeer& peer : peers_) {
      if (peer.rank == 0) continue;
      if (!send_value(peer.socket.get(), made.memory->place())) return lost(peer);
    }
    for (RankPeer& peer : peers_) {
      if (peer.rank == 0) continue;
      std::int32_t is_attached = 0;
      set_timeout(peer.socket.get(), options_.hang_timeout);
      if (!receive_value(peer.socket.get(), is_attached)) return lost(peer);
      answer.is_shared &= is_attached;
      answer.process_ids[static_cast<std::size_t>(peer.rank)] = peer.process;
    }
    for (const RankPeer& peer : peers_)
      if (peer.rank > 0 && !send_value(peer.socket.get(), answer)) return lost(peer);
    if (answer.is_shared == 0) made.memory.reset();
    made.process_ids.assign(answer.process_ids.begin(), answer.process_ids.begin() + options_.world_size);
    made.peers.assign(std::make_move_iterator(peers_.begin() + 1), std::make_move_iterator(peers_.end()));
    return made;
  }

  const RankOptions& options_;
  RankSocket listening_;
  HandshakeClock::time_point deadline_;
  std::vector<RankPeer> peers_;  ///< by rank; the first stays empty
};

}  // namespace

RankSocket::~RankSocket() {
  if (socket_ >= 0) ::close(socket_);
}

std::string to_string(const RankPeer& peer) {
  return fmt::format("rank {} (process {}{})", peer.rank, peer.process, peer.host.empty() ? "" : " on " + peer.host);
}

Result<RankIntroduction> host_ranks(RankListener listener, const RankOptions& options) {
  auto made = Host(std::move(listener), options).run();
  if (!made) return made;
  for (const RankPeer& peer : made->peers) make_prompt(peer.socket.get());
  return made;
}

Result<RankIntroduction> join_ranks(const RankOptions& options) {
  const HandshakeClock::time_point deadline = HandshakeClock::now() + options.start_timeout;
  std::string why;
  std::optional<RankSocket> socket;
  while (!(socket = connect_once(options.master_addr, options.master_port, why))) {
    if (HandshakeClock::now() > deadline)
      return no_group(
          fmt::format("rank {} reaches no rank 0 at {}:{}: {}", options.rank, options.master_addr, options.master_port, why));
    std::this_thread::sleep_for(kRetryConnect);
  }
  set_timeout(socket->get(), options.start_timeout);
  const Hello hello{.rank = options.rank,
                    .world_size = options.world_size,
                    .process = ::getpid(),
                    .token = text_of<64>(options.token),
                    .host = text_of<64>(host_name()),
                    .version = text_of<96>(options.version)};
  const auto gone = [&] {
    return no_group(fmt::format("rank {}: rank 0 at {}:{} has ended, or is no rank", options.rank, options.master_addr,
                                options.master_port));
  };
  Welcome welcome;
  if (!send_value(socket->get(), hello) || !receive_value(socket->get(), welcome) || welcome.magic != kHelloMagic)
    return gone();
  if (const std::string refusal = string_of(welcome.refusal); !refusal.empty())
    return no_group(fmt::format("rank {}: {}", options.rank, refusal));
  RankIntroduction made;
  RankMemoryPlace place;
  if (!receive_value(socket->get(), place)) return gone();
  made.memory = RankMemory::attach(place);
  Begin begin;
  if (!send_value(socket->get(), std::int32_t{made.memory != nullptr}) || !receive_value(socket->get(), begin)) return gone();
  if (begin.is_shared == 0) made.memory.reset();
  made.hang_timeout = milliseconds(begin.hang_timeout_ms);
  made.process_ids.assign(begin.process_ids.begin(), begin.process_ids.begin() + options.world_size);
  make_prompt(socket->get());
  const std::string host = string_of(welcome.host);
  made.peers.push_back({0, welcome.process, host == host_name() ? "" : host, std::move(*socket)});
  return made;
}

Result<RankListener> RankListener::bind(const std::string& address, std::uint16_t port) {
  const addrinfo hints = hints_of(AI_PASSIVE | AI_NUMERICSERV);
  AddressList found;
  const char* name = address.empty() ? nullptr : address.c_str();
  if (const int code = ::getaddrinfo(name, std::to_string(port).c_str(), &hints, &found.first); code != 0)
    return no_group(fmt::format("rank 0 cannot listen at '{}': {}", address, ::gai_strerror(code)));
  int why = 0;
  for (const addrinfo* each = found.first; each != nullptr; each = each->ai_next) {
    RankSocket socket(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    if (socket.get() < 0 || ::bind(socket.get(), each->ai_addr, each->ai_addrlen) != 0 ||
        ::listen(socket.get(), kMaxRanks) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
      why = errno;
      continue;
    }
    const std::uint16_t chosen = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                                                   : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
    return RankListener(socket.release(), chosen);
  }
  return no_group(
      fmt::format("rank 0 cannot listen at port {}{}: {}", port, address.empty() ? "" : " of " + address, std::strerror(why)));
}

RankListener::RankListener(RankListener&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), port_(std::exchange(other.port_, std::uint16_t{0})) {}

RankListener& RankListener::operator=(RankListener&& other) noexcept {
  std::swap(socket_, other.socket_);
  std::swap(port_, other.port_);
  return *this;
}

RankListener::~RankListener() {
  if (socket_ >= 0) ::close(socket_);
}

int RankListener::release() { return std::exchange(socket_, -1); }

}  // namespace baton
