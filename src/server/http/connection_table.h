/// Which connections are open, from where, and which of them gives way when there is no room for another.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/ids.h"
#include "core/limits/open_files.h"
#include "engine/request/metrics.h"
#include "server/http/parser.h"

namespace baton {

/// The id of one connection; never reused.
using ConnectionId = Id<struct ConnectionKind, std::int64_t>;

/// What a connection does, as far as its right to stay is concerned.
enum class ConnectionPhase {
  fresh,     ///< its first request has not begun
  idle,      ///< its last answer has been sent, and the next request has not begun
  arriving,  ///< a part of a request is there; the request may have been refused already
  busy,      ///< a request is being answered
  finished,  ///< its last answer has been sent, all of the request has been read, and it waits for the client to close
};

/// What there is too little of for a new connection.
enum class Shortage { none, connections, address, files };

struct ConnectionLimits {
  std::size_t max_connections = 8192;
  std::size_t max_per_address = 0;             ///< 0: no limit
  std::size_t max_reserved = 64;               ///< connections beyond the limits, which may ask for little
  std::chrono::milliseconds fresh_grace{250};  ///< between connecting and sending, handshakes of TLS included
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
/// Which connection gives way to a new one, in this order: one that is finished; the one that has been fresh or idle
/// longest, a fresh one not in its first moments; a request that does not arrive completely, if such requests have more
/// than half of the connections, the oldest first, and not in its first second. A connection beyond the limits is a
/// reserved one: the server answers health checks on it. All operations take constant time. Thread: the I/O thread.
class ConnectionTable {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kGrace{1000};  // of requests that arrive

  explicit ConnectionTable(const ConnectionLimits& limits) : limits_(limits) {}

  /// What a connection from `address` would lack.
  Shortage shortage(const std::string& address) const;
  bool has_reserve() const { return n_reserved_ < limits_.max_reserved; }
  /// The connection that is to be closed for a new one.
  std::optional<ConnectionId> reclaimable(Clock::time_point now) const;
  /// The reserved connection that is to be closed for a new one: one that is finished, or the oldest that is not busy.
  std::optional<ConnectionId> reclaimable_reserved() const;

  /// Adds a fresh connection.
  ConnectionId add(const std::string& address, bool is_reserved, Clock::time_point now);
  void set_phase(ConnectionId connection, ConnectionPhase phase, Clock::time_point now);
  /// The connection begins its phase again: it goes after the others that may give way.
  void renew(ConnectionId connection, Clock::time_point now);
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
    ConnectionPhase phase = ConnectionPhase::fresh;
    Clock::time_point since;  // of the phase
    Queue place;              // its own entry while it is busy, empty while it is in a queue
    Queue::iterator at;
  };
  /// Connections that wait for their clients, by the time they began to.
  struct Waiting {
    Queue fresh, idle, arriving, finished;
  };
  Queue* queue_of(const Connection& connection);
  void enqueue(Connection& connection);
  void dequeue(Connection& connection);
  std::optional<ConnectionId> older(const Queue& left, const Queue& right) const;
  bool has_waited(const Queue& queue, std::chrono::milliseconds time, Clock::time_point now) const;

  ConnectionLimits limits_;
  std::unordered_map<ConnectionId, Connection> connections_;
  std::unordered_map<std::string, std::size_t> n_of_address_;  // without reserved ones
  std::size_t n_reserved_ = 0;
  std::int64_t next_ = 0;
  Waiting waiting_;  // without reserved ones
  Waiting reserved_;
};

/// Decides for each new connection whether there is room: in the table of connections, and among the descriptors that the process may
/// open, some of which are kept for connections. Thread: the I/O thread; `counts` any.
class ConnectionRoom {
 public:
  using Clock = ConnectionTable::Clock;
  /// What the server does with a connection that the room names.
  struct Connections {
    /// Whether bytes of a request have arrived and wait to be read.
    std::function<bool(ConnectionId)> has_unread_request;
    /// Closes it, which removes it from the room.
    std::function<void(ConnectionId)> close;
  };
  ConnectionRoom(const ConnectionLimits& limits, std::size_t n_spare_files, Connections connections);

  /// Makes room for a connection that has come from `address`, and says what it lacks all the same: with anything but `none` it is a
  /// reserved one. nullopt: it is refused, which is counted.
  std::optional<Shortage> make_room(const std::string& address, Clock::time_point now);
  /// Frees a descriptor for a connection that cannot be accepted without one. False if none can be freed.
  bool free_file(Clock::time_point now);
  /// Why a reserved connection's request is refused.
  HttpRefusal refusal_for(Shortage shortage) const;

  /// Adds a fresh connection.
  ConnectionId add(const std::string& address, bool is_reserved, Clock::time_point now);
  void set_phase(ConnectionId connection, ConnectionPhase phase) { table_.set_phase(connection, phase, Clock::now()); }
  /// The connection's descriptor is free again. Idempotent.
  void remove(ConnectionId connection);

  /// Whether another reserved connection may be open.
  bool has_reserve() const { return table_.has_reserve(); }
  /// Counts a connection that was refused.
  void refused(Shortage shortage);
  /// What is done from time to time: opens spare descriptors again, and says at most once a second that connections were refused or closed
  /// for others.
  void tick(Clock::time_point now);
  const ConnectionCounts& counts() const { return counts_; }

 private:
  template <class Candidate>
  bool reclaim_first(Clock::time_point now, Candidate candidate);
  bool reclaim(Clock::time_point now);
  bool reclaim_reserved(Clock::time_point now);
  void report_shortage(Clock::time_point now);

  ConnectionTable table_;
  SpareFiles spare_files_;
  Connections connections_;
  ConnectionCounts counts_;
  std::int64_t n_reported_ = 0;
  Clock::time_point next_report_;
};

}  // namespace baton
