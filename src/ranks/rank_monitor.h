/// Watches the connections between rank 0 and the other ranks, and carries messages over them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/mutex.h"
#include "ranks/rank_handshake.h"

namespace baton {

/// What a frame on a connection is.
enum class RankFrame : std::uint32_t {
  beat,    ///< a sign of life
  stream,  ///< bytes from rank 0, where the ranks share no memory
  reply,   ///< a rank's bytes for RankGroup::gather
  fail,    ///< the group is broken; the bytes are the sentence
  end,     ///< rank 0 ends the group in order
};

/// A thread that reads the connections, sends signs of life, and finds ranks that have ended or hang. A fault, once
/// found, is told to all ranks and stays.
///
/// Thread: any, but for the waits of one kind, which one thread at a time may call.
class RankMonitor {
 public:
  /// `on_fault` is called once, on any thread, when the group breaks or ends.
  RankMonitor(std::vector<RankPeer> peers, int rank, std::chrono::milliseconds hang_timeout, std::function<void()> on_fault);
  /// Rank 0 ends the group. What was sent before is delivered, if that takes less than a second.
  ~RankMonitor();
  RankMonitor(const RankMonitor&) = delete;
  RankMonitor& operator=(const RankMonitor&) = delete;

  /// Sends a frame to all peers, in the order of the calls.
  void send(RankFrame frame, std::span<const std::byte> bytes);
  /// Waits for the next bytes of rank 0's stream. False: the group is broken or has ended.
  bool read_stream(std::span<std::byte> bytes);
  /// Waits for the next reply of a rank. Nothing: none has come, and the group is broken.
  std::optional<std::vector<std::byte>> read_reply(int from);

  /// Breaks the group with a sentence, unless it is broken.
  void break_group(const std::string& sentence);
  bool is_over() const { return is_over_.load(std::memory_order_relaxed); }
  bool has_ended() const;
  std::optional<std::string> fault() const;
  std::optional<std::string> wait_fault(std::chrono::milliseconds timeout) const;

 private:
  class Connections;

  // Called by the connections' thread.
  void take(int from, RankFrame frame, std::span<const std::byte> bytes);

  const int rank_;
  const std::function<void()> on_fault_;
  std::atomic<bool> is_over_{false};  ///< broken or ended

  mutable Mutex mutex_;
  mutable Condition changed_;
  std::optional<std::string> fault_ BATON_GUARDED_BY(mutex_);
  bool has_ended_ BATON_GUARDED_BY(mutex_) = false;
  std::vector<std::byte> stream_ BATON_GUARDED_BY(mutex_);
  std::size_t n_stream_read_ BATON_GUARDED_BY(mutex_) = 0;                            ///< of stream_
  std::vector<std::deque<std::vector<std::byte>>> replies_ BATON_GUARDED_BY(mutex_);  ///< by rank

  std::unique_ptr<Connections> connections_;  ///< constant
  std::thread thread_;
};

}  // namespace baton
