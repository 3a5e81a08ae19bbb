/// Which connections are open, from where, and which of them gives way when there is no room for another.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/ids.h"
#include "engine/metrics.h"

namespace baton {

/// The id of one connection; never reused.
using ConnectionId = Id<struct ConnectionKind, std::int64_t>;

/// What a connection does, as far as its right to stay is concerned.
enum class ConnectionPhase {
  idle,      ///< nothing of a request is there, or its answer has been sent and it is about to end
  arriving,  ///< a part of a request is there
  busy,      ///< a request is being answered
};

/// What there is too little of for a new connection.
enum class Shortage { none, connections, address, files };

struct ConnectionLimits {
  std::size_t max_connections = 8192;
  std::size_t max_per_address = 0;  ///< 0: no limit
  std::size_t max_reserved = 64;    ///< connections beyond the limits, which may ask for little
};

/// For metrics. Written by the I/O thread, read by any.
struct ConnectionCounts {
  Count open;
  Count limit;
  Count reclaimed;                                            ///< closed to make room for others
  Count refused_connections, refused_address, refused_files;  ///< by what there was too little of
};

/// The connections of a server.
///
/// An idle connection gives way at once, the one that has been idle longest first. A request that does not arrive
/// completely gives way when such requests have more than half of the connections, the oldest first, and not in its first
/// second. A connection beyond the limits is a reserved one: the server answers health checks on it. All operations take
/// constant time. Thread: the I/O thread.
class ConnectionTable {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kGrace{1000};

  explicit ConnectionTable(const ConnectionLimits& limits) : limits_(limits) {}

  /// What a connection from `address` would lack.
  Shortage shortage(const std::string& address) const;
  bool has_reserve() const { return n_reserved_ < limits_.max_reserved; }
  /// The connection that is to be closed for a new one.
  std::optional<ConnectionId> reclaimable(Clock::time_point now) const;
  /// The reserved connection that is to be closed for a new one.
  std::optional<ConnectionId> reclaimable_reserved() const;

  /// Adds an idle connection.
  ConnectionId add(const std::string& address, bool is_reserved, Clock::time_point now);
  void set_phase(ConnectionId connection, ConnectionPhase phase, Clock::time_point now);
  /// Idempotent.
  void remove(ConnectionId connection);

  /// Without reserved ones.
  std::size_t n_open() const { return connections_.size() - n_reserved_; }
  const ConnectionLimits& limits() const { return limits_; }

 private:
  using Queue = std::list<ConnectionId>;
  struct Connection {
    std::string address;
    bool is_reserved = false;
    ConnectionPhase phase = ConnectionPhase::idle;
    Clock::time_point since;  // of the phase
    Queue place;              // its own entry while it is busy, empty while it is in a queue
    Queue::iterator at;
  };
  Queue* queue_of(const Connection& connection);
  void enqueue(Connection& connection);
  void dequeue(Connection& connection);

  ConnectionLimits limits_;
  std::unordered_map<ConnectionId, Connection> connections_;
  std::unordered_map<std::string, std::size_t> n_of_address_;  // without reserved ones
  std::size_t n_reserved_ = 0;
  std::int64_t next_ = 0;
  // Those that wait for their clients, by the time they began to.
  Queue idle_;
  Queue arriving_;
  Queue reserved_;  // idle or arriving
};

}  // namespace baton
