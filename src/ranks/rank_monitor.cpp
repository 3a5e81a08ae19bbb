/// Connections between ranks, on one thread.
#include "ranks/rank_monitor.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "core/check.h"
#include "core/limits/thread_body.h"
#include "core/log.h"
#include "ranks/rank_processes.h"

namespace baton {
namespace {

namespace asio = boost::asio;
using RankError = boost::system::error_code;
using std::chrono::milliseconds;

constexpr milliseconds kBeat{500};
/// How long the destructor waits for what is unsent.
constexpr milliseconds kLastWords{1000};
/// How long the end of a child process is waited for, after its connection was closed.
constexpr int kEndTimeoutMs = 100;
/// For messages while memory is short: a rank that falls silent breaks the group.
constexpr std::size_t kRanksReserveBytes = std::size_t{1} << 20;

struct FrameHeader {
  RankFrame frame = RankFrame::beat;
  std::uint32_t n_bytes = 0;
};

}  // namespace

/// The sockets. Thread: the monitor's, but for post_frame, post_end and the constructor.
class RankMonitor::Connections {
 public:
  Connections(std::vector<RankPeer> peers, milliseconds hang_timeout, RankMonitor& owner)
      : owner_(owner), most_missed_(static_cast<int>(hang_timeout / kBeat)), timer_(io_) {
    for (RankPeer& peer : peers) {
      const int socket = peer.socket.release();
      auto link = std::make_unique<Link>(Link{std::move(peer), asio::ip::tcp::socket(io_)});
      RankError error;
      link->socket.assign(asio::ip::tcp::v4(), socket, error);
      check(!error, "RankMonitor: a connection cannot be watched");
      links_.push_back(std::move(link));
    }
    for (const auto& link : links_) read(*link);
    beat();
  }

  void run(MemoryReserve& reserve) {
    while (io_.run_one() > 0) reserve.restore();
  }

  void post_frame(RankFrame frame, std::span<const std::byte> bytes) {
    auto message = make_message(frame, bytes);
    asio::post(io_, [this, message = std::move(message)] { send_to_all(message); });
  }
  /// Lets run() return when everything is sent, or after kLastWords.
  void post_end() {
    asio::post(io_, [this] {
      is_ending_ = true;
      timer_.expires_after(kLastWords);
      timer_.async_wait([this](const RankError& error) {
        if (!error) io_.stop();
      });
      stop_if_sent();
    });
  }

 private:
  using Message = std::shared_ptr<const std::vector<std::byte>>;
  struct Link {
    RankPeer peer;
    asio::ip::tcp::socket socket;
    std::deque<Message> unsent = {};
    std::vector<std::byte> received = {};  ///< a frame's beginning
    std::array<std::byte, 1 << 16> part = {};
    int n_missed = 0;  ///< beats of this rank since the peer's last byte
    bool is_open = true;
  };

  static Message make_message(RankFrame frame, std::span<const std::byte> bytes) {
    const FrameHeader header{frame, static_cast<std::uint32_t>(bytes.size())};
    auto message = std::make_shared<std::vector<std::byte>>(sizeof(header) + bytes.size());
    std::memcpy(message->data(), &header, sizeof(header));
    if (!bytes.empty()) std::memcpy(message->data() + sizeof(header), bytes.data(), bytes.size());
    return message;
  }

  void send_to_all(const Message& message) {
    for (const auto& link : links_) {
      if (!link->is_open) continue;
      link->unsent.push_back(message);
      if (link->unsent.size() == 1) write(*link);
    }
  }

  void write(Link& link) {
    const Message& message = link.unsent.front();
    asio::async_write(link.socket, asio::buffer(message->data(), message->size()),
                      [this, &link](const RankError& error, std::size_t) {
                        if (error) return close(link);
                        link.unsent.pop_front();
                        if (!link.unsent.empty()) {
                          write(link);
                        } else {
                          stop_if_sent();
                        }
                      });
  }

  void stop_if_sent() {
    const auto is_sent = [](const auto& link) { return !link->is_open || link->unsent.empty(); };
    if (is_ending_ && std::ranges::all_of(links_, is_sent)) io_.stop();
  }

  void read(Link& link) {
    link.socket.async_read_some(
        asio::buffer(link.part.data(), link.part.size()), [this, &link](const RankError& error, std::size_t n) {
          if (error) return close(link);
          link.n_missed = 0;
          link.received.insert(link.received.end(), link.part.begin(), link.part.begin() + static_cast<std::ptrdiff_t>(n));
          take_frames(link);
          read(link);
        });
  }

  void take_frames(Link& link) {
    std::span<const std::byte> left = link.received;
    while (left.size() >= sizeof(FrameHeader)) {
      FrameHeader header;
      std::memcpy(&header, left.data(), sizeof(header));
      if (left.size() - sizeof(header) < header.n_bytes) break;
      owner_.take(link.peer.rank, header.frame, left.subspan(sizeof(header), header.n_bytes));
      left = left.subspan(sizeof(header) + header.n_bytes);
    }
    link.received.erase(link.received.begin(), link.received.end() - static_cast<std::ptrdiff_t>(left.size()));
  }

  /// The other end is gone, which breaks a group that has not ended.
  void close(Link& link) {
    if (!link.is_open) return;
    link.is_open = false;
    RankError ignored;
    link.socket.close(ignored);
    if (is_ending_) return stop_if_sent();
    if (owner_.is_over()) return;
    const RankPeer& peer = link.peer;
    const bool may_be_child = peer.process != ::getpid() && peer.host.empty();
    const auto how = may_be_child ? how_child_ended(static_cast<int>(peer.process), kEndTimeoutMs) : std::nullopt;
    owner_.break_group(to_string(peer) + how.value_or(" has ended"));
  }

  /// Counts in its own beats, not by the clock: after all ranks were stopped together (a frozen container), none is late.
  void beat() {
    timer_.expires_after(kBeat);
    timer_.async_wait([this](const RankError& error) {
      if (error || is_ending_) return;
      send_to_all(make_message(RankFrame::beat, {}));
      for (const auto& link : links_) {
        if (link->is_open && ++link->n_missed > most_missed_ && !owner_.is_over())
          owner_.break_group(fmt::format("{} has given no sign of life for {:.1f} s", to_string(link->peer),
                                         std::chrono::duration<double>(most_missed_ * kBeat).count()));
      }
      beat();
    });
  }

  RankMonitor& owner_;
  const int most_missed_;
  asio::io_context io_;
  asio::steady_timer timer_;
  std::vector<std::unique_ptr<Link>> links_;
  bool is_ending_ = false;
};

RankMonitor::RankMonitor(std::vector<RankPeer> peers, int rank, milliseconds hang_timeout, std::function<void()> on_fault)
    : rank_(rank), on_fault_(std::move(on_fault)) {
  replies_.resize(peers.size() + 1);
  connections_ = std::make_unique<Connections>(std::move(peers), hang_timeout, *this);
  thread_ =
      std::thread(thread_body("ranks", kRanksReserveBytes, [this](MemoryReserve& reserve) { connections_->run(reserve); }));
}

RankMonitor::~RankMonitor() {
  if (rank_ == 0 && !fault()) connections_->post_frame(RankFrame::end, {});
  connections_->post_end();
  thread_.join();
}

void RankMonitor::send(RankFrame frame, std::span<const std::byte> bytes) { connections_->post_frame(frame, bytes); }

bool RankMonitor::read_stream(std::span<std::byte> bytes) {
  const MutexLock lock(mutex_);
  while (!fault_ && !has_ended_ && stream_.size() - n_stream_read_ < bytes.size()) changed_.wait(mutex_);
  if (fault_ || stream_.size() - n_stream_read_ < bytes.size()) return false;
  if (!bytes.empty()) std::memcpy(bytes.data(), stream_.data() + n_stream_read_, bytes.size());
  n_stream_read_ += bytes.size();
  if (n_stream_read_ == stream_.size()) {
    stream_.clear();
    n_stream_read_ = 0;
  }
  return true;
}

std::optional<std::vector<std::byte>> RankMonitor::read_reply(int from) {
  const MutexLock lock(mutex_);
  auto& replies = replies_.at(static_cast<std::size_t>(from));
  while (!fault_ && replies.empty()) changed_.wait(mutex_);
  if (replies.empty()) return std::nullopt;  // a reply that came counts, even if its rank is gone now
  std::vector<std::byte> reply = std::move(replies.front());
  replies.pop_front();
  return reply;
}

void RankMonitor::break_group(const std::string& sentence) {
  {
    const MutexLock lock(mutex_);
    if (fault_ || has_ended_) return;
    fault_ = sentence;
    is_over_ = true;
    changed_.notify_all();
  }
  // Rank 0 tells all others; another rank tells rank 0.
  connections_->post_frame(RankFrame::fail, std::as_bytes(std::span(sentence)));
  on_fault_();
}

bool RankMonitor::has_ended() const {
  const MutexLock lock(mutex_);
  return has_ended_;
}

std::optional<std::string> RankMonitor::fault() const {
  const MutexLock lock(mutex_);
  return fault_;
}

std::optional<std::string> RankMonitor::wait_fault(milliseconds timeout) const {
  const auto end = std::chrono::steady_clock::now() + timeout;
  const MutexLock lock(mutex_);
  while (!fault_ && !has_ended_ && changed_.wait_until(mutex_, end)) {
  }
  return fault_;
}

void RankMonitor::take(int from, RankFrame frame, std::span<const std::byte> bytes) {
  switch (frame) {
    case RankFrame::beat: return;
    case RankFrame::stream: {
      const MutexLock lock(mutex_);
      stream_.insert(stream_.end(), bytes.begin(), bytes.end());
      changed_.notify_all();
      return;
    }
    case RankFrame::reply: {
      const MutexLock lock(mutex_);
      replies_.at(static_cast<std::size_t>(from)).emplace_back(bytes.begin(), bytes.end());
      changed_.notify_all();
      return;
    }
    case RankFrame::fail: {
      const std::string sentence(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return break_group(sentence);
    }
    case RankFrame::end: {
      {
        const MutexLock lock(mutex_);
        if (fault_) return;
        has_ended_ = true;
        is_over_ = true;
        changed_.notify_all();
      }
      return on_fault_();
    }
  }
}

}  // namespace baton
