/// The ranks that run one model together (tensor parallelism): which they are, what they share and whether all still
/// run.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/file_descriptor.h"
#include "core/result.h"

namespace baton {

/// The most ranks of a group.
inline constexpr int kMaxRanks = 64;

/// How a rank finds its group. All ranks must have the same world size and token.
struct RankOptions {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;                     ///< index among the ranks of this host: the index of its device
  std::string master_addr = "127.0.0.1";  ///< host name or address of rank 0
  std::uint16_t master_port = 0;          ///< where rank 0 listens
  /// Rank 0 refuses a rank with another one. It must not be empty where rank 0 listens at, or is reached by, another
  /// address than the loopback's.
  std::string token = {};
  std::string version = {};  ///< of the program; a rank with this token and another version ends the start
  /// Of RankGroup::memory(); rank 0's value counts. 0: the ranks share no memory, as if each had its own host.
  std::size_t memory_bytes = std::size_t{64} << 20;
  std::chrono::milliseconds start_timeout{600'000};  ///< until all ranks must have joined
  /// A rank that sends no sign of life for so long is given up; rank 0's value counts.
  std::chrono::milliseconds hang_timeout{6'000};
  std::chrono::milliseconds barrier_timeout{60'000};  ///< in which every rank must reach a barrier
  /// Asked while the group forms: a sentence that says why a rank will never join, for example that its process has
  /// ended. May be empty.
  std::function<std::optional<std::string>()> find_lost_rank = {};
};

/// Rank 0's open port, before anybody has joined. Move-only.
class RankListener {
 public:
  /// Port 0: a free one. Errors: unavailable (port taken, address not of this host).
  static Result<RankListener> bind(const std::string& address, std::uint16_t port);

  /// 0 once the socket was given away.
  std::uint16_t port() const { return socket_.number() < 0 ? std::uint16_t{0} : port_; }
  /// Gives away the listening socket.
  FileDescriptor take_socket() { return std::move(socket_); }

 private:
  RankListener(FileDescriptor socket, std::uint16_t port) : socket_(std::move(socket)), port_(port) {}
  FileDescriptor socket_;
  std::uint16_t port_ = 0;
};

/// One rank's membership in a group. Rank 0 has a connection to each other rank. If all ranks run on one host, they
/// also share memory, which has no name and disappears with its last process.
///
/// A group is whole or broken, for good. It breaks when a rank's process ends, gives no sign of life for hang_timeout,
/// misses a barrier or calls `fail`; every rank learns of it within milliseconds, and from then on no call waits.
///
/// Thread: any for is_broken, fault, fail and the constants. `barrier`, and the calls that send or receive, belong to
/// one thread at a time: all ranks must call them in the same order. A thread of the group watches the connections.
class RankGroup {
 public:
  /// Rank 0: waits until all other ranks have joined. A process with another token, or without tokens another world
  /// size or version, is refused with a line in the log, and slow connections are waited for together. Errors:
  /// unavailable (a rank does not come, or comes with the token and another world size or version: the sentence names
  /// it), invalid_request (no token, see RankOptions::token), out_of_memory.
  static Result<std::shared_ptr<RankGroup>> host(RankListener listener, const RankOptions& options);
  /// Ranks > 0: connects to rank 0, which may not listen yet. Errors: unavailable (no rank 0 listens within
  /// start_timeout, or rank 0 refuses this rank: the sentence says why).
  static Result<std::shared_ptr<RankGroup>> join(const RankOptions& options);
  /// Groups whose ranks are threads of this process, for tests. [world_size], by rank.
  static Result<std::vector<std::shared_ptr<RankGroup>>> make_threads(RankOptions options);
  /// Rank 0 tells the others that the group has ended; then their connections close, and no rank is broken. Another
  /// rank that leaves before that breaks the group.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int rank() const;
  int world_size() const;
  int local_rank() const;
  /// All ranks run on one host and share memory().
  bool is_on_one_host() const;

  /// Memory that all ranks share, page-aligned and zero at first; the same bytes, at different addresses. For
  /// collectives. Empty if the ranks run on several hosts.
  std::span<std::byte> memory() const;
  /// Waits until all ranks have called it; what they wrote to memory() before is then visible. Returns false if the
  /// group is broken: the caller's result is then worthless, and it continues without waiting.
  [[nodiscard]] bool barrier();

  /// Rank 0: passes bytes on to all other ranks, in one copy if they share memory. Waits only while the others have
  /// more than a ring's size (ring_bytes) unread. Returns false if the group is broken.
  [[nodiscard]] bool send(std::span<const std::byte> bytes);
  /// Ranks > 0: fills `bytes` with the next bytes that rank 0 sent. Returns false if the group is broken or has ended.
  [[nodiscard]] bool receive(std::span<std::byte> bytes);
  /// Rank 0's bytes to all, which give the same size: send and receive in one.
  [[nodiscard]] bool broadcast(std::span<std::byte> bytes);
  /// The bytes of every rank, by rank, on rank 0; nothing on the others. For setup: small messages of any size. Waits
  /// without a limit while the group is whole. Error unavailable: the group is broken, with the sentence of fault().
  Result<std::vector<std::vector<std::byte>>> gather(std::span<const std::byte> bytes);

  bool is_broken() const;
  /// Rank 0 has ended the group in order. False on rank 0.
  bool has_ended() const;
  /// A sentence that says which rank failed and why; nothing while the group is whole.
  std::optional<std::string> fault() const;
  /// Breaks the group: this rank cannot continue. All ranks get the sentence "rank R: SENTENCE".
  void fail(const std::string& sentence);
  /// Waits until the group is broken, has ended, or `timeout` is over. Returns fault().
  std::optional<std::string> wait_fault(std::chrono::milliseconds timeout) const;
  /// The process ids of the ranks, as their hosts number them.
  const std::vector<std::int64_t>& process_ids() const;

  static constexpr std::size_t ring_bytes = std::size_t{8} << 20;

 private:
  class Impl;
  explicit RankGroup(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
