/// Connects the ranks. Everything here ends within start_timeout.
#include "ranks/rank_handshake.h"

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
#include <string_view>
#include <thread>
#include <type_traits>

#include <fmt/format.h>

#include "core/check.h"
#include "core/log.h"
#include "ranks/rank_address.h"
#include "ranks/rank_processes.h"

namespace baton {
namespace {

using HandshakeClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// A connection whose hello has not come for so long belongs to no rank.
constexpr milliseconds kHelloTimeout{2000};
constexpr milliseconds kRetryConnect{20};
/// Of a token: as much as a variable of the environment can hold.
constexpr std::size_t kMostTokenBytes = 128 << 10;
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

constexpr auto kHelloMagic = std::to_array("BatonR2");

/// The first message of a rank. Its token follows.
struct Hello {
  Text<8> magic = kHelloMagic;
  std::int32_t rank = 0;
  std::int32_t world_size = 0;
  std::int64_t process = 0;
  std::int64_t token_bytes = 0;
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

bool send_bytes(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

template <class T>
bool send_value(int socket, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return send_bytes(socket, {reinterpret_cast<const char*>(&value), sizeof(T)});
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

/// In a time that depends on the length of `theirs` alone.
bool is_same_token(std::string_view ours, std::string_view theirs) {
  unsigned difference = ours.size() == theirs.size() ? 0 : 1;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    const char own = ours.empty() ? '\0' : ours[i % ours.size()];
    difference |= static_cast<unsigned char>(own) ^ static_cast<unsigned char>(theirs[i]);
  }
  return difference == 0;
}

tl::unexpected<Error> no_token(int rank, const std::string& where) {
  return fail(ErrorCode::invalid_request,
              fmt::format("rank {}: {} can be reached from other hosts, so all ranks need the same secret: set {} in their "
                          "environment",
                          rank, where, kRankTokenVariable));
}

Result<void> check_token(const RankOptions& options) {
  if (options.token.size() <= kMostTokenBytes) return {};
  return fail(ErrorCode::invalid_request,
              fmt::format("{} has {} bytes; at most {} are taken", kRankTokenVariable, options.token.size(), kMostTokenBytes));
}

/// Nothing if one try failed; `why` then says how. `is_open`: an address is not this host's loopback, and without a token
/// it is not tried.
std::optional<FileDescriptor> connect_once(const RankOptions& options, std::string& why, bool& is_open) {
  const addrinfo hints = hints_of(AI_NUMERICSERV);
  AddressList found;
  const std::string port = std::to_string(options.master_port);
  if (const int code = ::getaddrinfo(options.master_addr.c_str(), port.c_str(), &hints, &found.first); code != 0) {
    why = ::gai_strerror(code);
    return std::nullopt;
  }
  for (const addrinfo* each = found.first; each != nullptr; each = each->ai_next) {
    is_open = is_open || !is_loopback(each->ai_addr);
    if (is_open && options.token.empty()) return std::nullopt;
    FileDescriptor socket(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.number() < 0) continue;
    set_timeout(socket.number(), kHelloTimeout);
    if (::connect(socket.number(), each->ai_addr, each->ai_addrlen) == 0) return socket;
    why = std::strerror(errno);
  }
  return std::nullopt;
}

/// Rank 0 while the others come.
class Host {
 public:
  Host(RankListener listener, const RankOptions& options)
      : options_(options), listening_(listener.take_socket()), deadline_(HandshakeClock::now() + options.start_timeout) {
    peers_.resize(static_cast<std::size_t>(options.world_size));
    for (std::size_t r = 0; r < peers_.size(); ++r) peers_[r].rank = static_cast<int>(r);
  }

  Result<RankIntroduction> run() {
    BATON_TRY_VOID(check_address());
    while (const int missing = first_missing()) {
      BATON_TRY_VOID(look_for_lost());
      if (HandshakeClock::now() > deadline_)
        return no_group(fmt::format("rank {} of {} has not joined within {} s{}", missing, options_.world_size,
                                    options_.start_timeout.count() / 1000,
                                    last_refusal_.empty() ? "" : " (refused: " + last_refusal_ + ")"));
      wait_for_hellos();
      if (has_input(0)) accept_one();
      BATON_TRY_VOID(read_hellos());
    }
    return begin();
  }

 private:
  /// A connection whose hello has not come as a whole.
  struct Stranger {
    FileDescriptor socket;
    HandshakeClock::time_point deadline;
    std::string bytes = {};
  };
  /// More connections than these end the oldest.
  static constexpr std::size_t kMostStrangers = 2 * kMaxRanks;

  /// Any program that reaches a port beyond this host could be a rank.
  Result<void> check_address() const {
    BATON_TRY_VOID(check_token(options_));
    sockaddr_storage bound{};
    socklen_t size = sizeof(bound);
    auto* const address = reinterpret_cast<sockaddr*>(&bound);
    if (!options_.token.empty() || ::getsockname(listening_.number(), address, &size) != 0 || is_loopback(address)) return {};
    return no_token(0, "the port where rank 0 listens");
  }

  /// 0: all have come.
  int first_missing() const {
    const auto missing =
        std::find_if(peers_.begin() + 1, peers_.end(), [](const RankPeer& peer) { return peer.socket.number() < 0; });
    return missing == peers_.end() ? 0 : missing->rank;
  }

  Result<void> look_for_lost() const {
    if (options_.find_lost_rank) {
      if (const auto sentence = options_.find_lost_rank()) return no_group(*sentence);
    }
    for (const RankPeer& peer : peers_)
      if (peer.socket.number() >= 0 && is_closed(peer.socket.number()))
        return no_group(to_string(peer) + " ended before all ranks had joined");
    return {};
  }

  /// Waits for the listening socket, the first of those polled, and for all strangers.
  void wait_for_hellos() {
    polled_.assign(1, {.fd = listening_.number(), .events = POLLIN, .revents = 0});
    for (const Stranger& stranger : strangers_)
      polled_.push_back({.fd = stranger.socket.number(), .events = POLLIN, .revents = 0});
    if (::poll(polled_.data(), polled_.size(), static_cast<int>(kLookForLost.count())) > 0) return;
    for (pollfd& each : polled_) each.revents = 0;
  }
  bool has_input(std::size_t polled) const { return polled < polled_.size() && polled_[polled].revents != 0; }

  void accept_one() {
    FileDescriptor socket(::accept4(listening_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.number() < 0) return;
    set_timeout(socket.number(), kHelloTimeout);
    strangers_.push_back({std::move(socket), HandshakeClock::now() + kHelloTimeout});
  }

  /// Takes what has come of every hello; one that is whole is answered.
  Result<void> read_hellos() {
    std::vector<Stranger> waiting;
    for (std::size_t i = 0; i < strangers_.size(); ++i) {
      Stranger& stranger = strangers_[i];
      const bool is_there = !has_input(i + 1) || read_some(stranger);
      const std::optional<std::size_t> wanted = wanted_bytes(stranger);
      const bool is_too_many = strangers_.size() - i + waiting.size() > kMostStrangers;
      if (!is_there || !wanted || stranger.deadline < HandshakeClock::now() || is_too_many) {
        log::warning("event=rank_refused reason=\"a connection that is not a rank's\"");
      } else if (stranger.bytes.size() == *wanted) {
        BATON_TRY_VOID(answer(stranger));
      } else {
        waiting.push_back(std::move(stranger));
      }
    }
    strangers_ = std::move(waiting);
    return {};
  }

  /// How long the hello is, with its token; nothing if it is none.
  static std::optional<std::size_t> wanted_bytes(const Stranger& stranger) {
    if (stranger.bytes.size() < sizeof(Hello)) return sizeof(Hello);
    const Hello hello = hello_of(stranger);
    if (hello.magic != kHelloMagic || hello.token_bytes < 0 || hello.token_bytes > static_cast<std::int64_t>(kMostTokenBytes))
      return std::nullopt;
    return sizeof(Hello) + static_cast<std::size_t>(hello.token_bytes);
  }
  static Hello hello_of(const Stranger& stranger) {
    Hello hello;
    std::memcpy(&hello, stranger.bytes.data(), sizeof(hello));
    return hello;
  }

  /// Reads what has come, and not beyond the hello. False: the connection has ended.
  static bool read_some(Stranger& stranger) {
    for (;;) {
      const std::optional<std::size_t> wanted = wanted_bytes(stranger);
      const std::size_t before = stranger.bytes.size();
      if (!wanted || before == *wanted) return true;
      stranger.bytes.resize(*wanted);
      const ssize_t n = ::recv(stranger.socket.number(), stranger.bytes.data() + before, *wanted - before, MSG_DONTWAIT);
      stranger.bytes.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return false;
      if (n < 0 && errno != EINTR) return true;
    }
  }

  /// Welcomes a rank or refuses it. A refusal ends the start only if the rank has proved by a token that it belongs to it.
  Result<void> answer(Stranger& stranger) {
    const Hello hello = hello_of(stranger);
    const int socket = stranger.socket.number();
    Welcome welcome{.process = ::getpid(), .host = text_of<64>(host_name())};
    if (!is_same_token(options_.token, std::string_view(stranger.bytes).substr(sizeof(Hello)))) {
      log::warning("event=rank_refused rank={} reason=\"it has another token\"", hello.rank);
      last_refusal_ = fmt::format("rank {} has another token ({})", hello.rank, kRankTokenVariable);
      welcome.refusal = text_of<256>(fmt::format("rank 0 has another token ({})", kRankTokenVariable));
      send_value(socket, welcome);
      return {};
    }
    const std::string refusal = why_not(hello);
    welcome.refusal = text_of<256>(refusal);
    send_value(socket, welcome);  // a rank that has left is found by look_for_lost
    if (!refusal.empty()) {
      if (!options_.token.empty()) return no_group(refusal);
      log::warning("event=rank_refused rank={} reason=\"{}\"", hello.rank, refusal);
      last_refusal_ = refusal;
      return {};
    }
    RankPeer& peer = peers_[static_cast<std::size_t>(hello.rank)];
    peer.process = hello.process;
    if (const std::string host = string_of(hello.host); host != host_name()) peer.host = host;
    peer.socket = std::move(stranger.socket);
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
    if (peers_[static_cast<std::size_t>(hello.rank)].socket.number() >= 0)
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
      if (!send_value(peer.socket.number(), made.memory->place())) return lost(peer);
    }
    for (RankPeer& peer : peers_) {
      if (peer.rank == 0) continue;
      std::int32_t is_attached = 0;
      set_timeout(peer.socket.number(), options_.hang_timeout);
      if (!receive_value(peer.socket.number(), is_attached)) return lost(peer);
      answer.is_shared &= is_attached;
      answer.process_ids[static_cast<std::size_t>(peer.rank)] = peer.process;
    }
    for (const RankPeer& peer : peers_)
      if (peer.rank > 0 && !send_value(peer.socket.number(), answer)) return lost(peer);
    if (answer.is_shared == 0) made.memory.reset();
    made.process_ids.assign(answer.process_ids.begin(), answer.process_ids.begin() + options_.world_size);
    made.peers.assign(std::make_move_iterator(peers_.begin() + 1), std::make_move_iterator(peers_.end()));
    return made;
  }

  const RankOptions& options_;
  FileDescriptor listening_;
  HandshakeClock::time_point deadline_;
  std::vector<RankPeer> peers_;  ///< by rank; the first stays empty
  std::vector<Stranger> strangers_;
  std::vector<pollfd> polled_;
  std::string last_refusal_;
};

}  // namespace

std::string to_string(const RankPeer& peer) {
  return fmt::format("rank {} (process {}{})", peer.rank, peer.process, peer.host.empty() ? "" : " on " + peer.host);
}

Result<RankIntroduction> host_ranks(RankListener listener, const RankOptions& options) {
  auto made = Host(std::move(listener), options).run();
  if (!made) return made;
  for (const RankPeer& peer : made->peers) make_prompt(peer.socket.number());
  return made;
}

Result<RankIntroduction> join_ranks(const RankOptions& options) {
  BATON_TRY_VOID(check_token(options));
  const HandshakeClock::time_point deadline = HandshakeClock::now() + options.start_timeout;
  std::string why;
  std::optional<FileDescriptor> socket;
  bool is_open = false;
  while (!(socket = connect_once(options, why, is_open))) {
    if (is_open && options.token.empty())
      return no_token(options.rank, fmt::format("rank 0 at {}:{}", options.master_addr, options.master_port));
    if (HandshakeClock::now() > deadline)
      return no_group(
          fmt::format("rank {} reaches no rank 0 at {}:{}: {}", options.rank, options.master_addr, options.master_port, why));
    std::this_thread::sleep_for(kRetryConnect);
  }
  set_timeout(socket->number(), options.start_timeout);
  const Hello hello{.rank = options.rank,
                    .world_size = options.world_size,
                    .process = ::getpid(),
                    .token_bytes = static_cast<std::int64_t>(options.token.size()),
                    .host = text_of<64>(host_name()),
                    .version = text_of<96>(options.version)};
  const auto gone = [&] {
    return no_group(fmt::format("rank {}: rank 0 at {}:{} has ended, or is not a rank", options.rank, options.master_addr,
                                options.master_port));
  };
  Welcome welcome;
  if (!send_value(socket->number(), hello) || !send_bytes(socket->number(), options.token) ||
      !receive_value(socket->number(), welcome) || welcome.magic != kHelloMagic)
    return gone();
  if (const std::string refusal = string_of(welcome.refusal); !refusal.empty())
    return no_group(fmt::format("rank {}: {}", options.rank, refusal));
  RankIntroduction made;
  RankMemoryPlace place;
  if (!receive_value(socket->number(), place)) return gone();
  made.memory = RankMemory::attach(place);
  Begin begin;
  if (!send_value(socket->number(), std::int32_t{made.memory != nullptr}) || !receive_value(socket->number(), begin))
    return gone();
  if (begin.is_shared == 0) made.memory.reset();
  made.hang_timeout = milliseconds(begin.hang_timeout_ms);
  made.process_ids.assign(begin.process_ids.begin(), begin.process_ids.begin() + options.world_size);
  make_prompt(socket->number());
  const std::string host = string_of(welcome.host);
  made.peers.push_back({0, welcome.process, host == host_name() ? "" : host, std::move(*socket)});
  return made;
}

}  // namespace baton
