/// Room for connections: what a new one lacks, which one gives way to it, and what the metrics and the log say of that.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/limits/open_files.h"
#include "server/http/connection_table.h"
#include "server/http/parser.h"

namespace baton {

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
