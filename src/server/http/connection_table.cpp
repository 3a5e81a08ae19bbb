/// Counting connections and queueing the ones that may give way.
#include "server/http/connection_table.h"

#include <utility>

#include <fmt/format.h>

#include "core/log.h"

namespace baton {
namespace {

constexpr int kJudgedPerAccept = 64;  // connections that may give way
constexpr std::chrono::milliseconds kReportInterval{1000};

}  // namespace

ConnectionRoom::ConnectionRoom(const ConnectionLimits& limits, std::size_t n_spare_files, Connections connections)
    : table_(limits), spare_files_(n_spare_files), connections_(std::move(connections)) {
  counts_.limit.set(static_cast<std::int64_t>(limits.max_connections));
}

/// Closes for another connection the one that `candidate` names. One whose bytes have arrived and wait to be read is not
/// silent, whatever its phase says: it gets another turn. False if none is closed.
template <class Candidate>
bool ConnectionRoom::reclaim_first(Clock::time_point now, Candidate candidate) {
  for (int i = 0; i < kJudgedPerAccept; ++i) {
    const std::optional<ConnectionId> connection = candidate();
    if (!connection) return false;
    if (connections_.has_unread_request(*connection)) {
      table_.renew(*connection, now);
      continue;
    }
    counts_.reclaimed.add(1);
    connections_.close(*connection);
    return true;
  }
  return false;
}

bool ConnectionRoom::reclaim(Clock::time_point now) {
  return reclaim_first(now, [&] { return table_.reclaimable(now); });
}
bool ConnectionRoom::reclaim_reserved(Clock::time_point now) {
  return reclaim_first(now, [&] { return table_.reclaimable_reserved(); });
}

std::optional<Shortage> ConnectionRoom::make_room(const std::string& address, Clock::time_point now) {
  spare_files_.refill();
  Shortage shortage = spare_files_.n_missing() > 0 ? Shortage::files : table_.shortage(address);
  if (shortage == Shortage::connections && reclaim(now)) shortage = Shortage::none;
  if (shortage == Shortage::none || table_.has_reserve() || reclaim_reserved(now)) return shortage;
  refused(shortage);
  return std::nullopt;
}

bool ConnectionRoom::free_file(Clock::time_point now) { return reclaim(now) || spare_files_.give() || reclaim_reserved(now); }

HttpRefusal ConnectionRoom::refusal_for(Shortage shortage) const {
  const ConnectionLimits& limits = table_.limits();
  if (shortage == Shortage::address)
    return {429, fmt::format("{} connections from your address are open, which is this server's limit for one address",
                             limits.max_per_address)};
  if (shortage == Shortage::files) return {503, "this server may open no more files for connections"};
  return {503, fmt::format("{} connections are open, which is this server's limit", limits.max_connections)};
}

ConnectionId ConnectionRoom::add(const std::string& address, bool is_reserved, Clock::time_point now) {
  const ConnectionId connection = table_.add(address, is_reserved, now);
  counts_.open.set(static_cast<std::int64_t>(table_.n_open()));
  return connection;
}

void ConnectionRoom::remove(ConnectionId connection) {
  table_.remove(connection);
  counts_.open.set(static_cast<std::int64_t>(table_.n_open()));
  spare_files_.refill();
}

void ConnectionRoom::refused(Shortage shortage) {
  Count& count = shortage == Shortage::address ? counts_.refused_address
                 : shortage == Shortage::files ? counts_.refused_files
                                               : counts_.refused_connections;
  count.add(1);
}

void ConnectionRoom::report_shortage(Clock::time_point now) {
  const std::int64_t n_refused =
      counts_.refused_connections.value() + counts_.refused_address.value() + counts_.refused_files.value();
  const std::int64_t n_reclaimed = counts_.reclaimed.value();
  if (n_refused + n_reclaimed == n_reported_ || now < next_report_) return;
  n_reported_ = n_refused + n_reclaimed;
  next_report_ = now + kReportInterval;
  log::warning("event=connections_short open={} limit={} reclaimed_total={} refused_total={}", table_.n_open(),
               table_.limits().max_connections, n_reclaimed, n_refused);
}

void ConnectionRoom::tick(Clock::time_point now) {
  report_shortage(now);
  spare_files_.refill();
}

Shortage ConnectionTable::shortage(const std::string& address) const {
  if (limits_.max_per_address > 0 && !address.empty()) {
    const auto found = n_of_address_.find(address);
    if (found != n_of_address_.end() && found->second >= limits_.max_per_address) return Shortage::address;
  }
  return n_open() >= limits_.max_connections ? Shortage::connections : Shortage::none;
}

/// Whether the first connection of the queue has been there for this time.
bool ConnectionTable::has_waited(const Queue& queue, std::chrono::milliseconds time, Clock::time_point now) const {
  return !queue.empty() && now - connections_.at(queue.front()).since >= time;
}

/// The first connection of two queues: the one that has been in its phase longer.
std::optional<ConnectionId> ConnectionTable::older(const Queue& left, const Queue& right) const {
  if (left.empty() || right.empty()) {
    const Queue& other = left.empty() ? right : left;
    return other.empty() ? std::nullopt : std::optional(other.front());
  }
  const bool is_left = connections_.at(left.front()).since <= connections_.at(right.front()).since;
  return is_left ? left.front() : right.front();
}

std::optional<ConnectionId> ConnectionTable::reclaimable(Clock::time_point now) const {
  if (!waiting_.finished.empty()) return waiting_.finished.front();
  static const Queue kNone;
  const Queue& fresh = has_waited(waiting_.fresh, limits_.fresh_grace, now) ? waiting_.fresh : kNone;
  if (const auto longest = older(fresh, waiting_.idle)) return longest;
  const bool are_many = waiting_.arriving.size() > limits_.max_connections / 2;
  return are_many && has_waited(waiting_.arriving, kGrace, now) ? std::optional(waiting_.arriving.front()) : std::nullopt;
}

std::optional<ConnectionId> ConnectionTable::reclaimable_reserved() const {
  if (!reserved_.finished.empty()) return reserved_.finished.front();
  return older(reserved_.fresh, reserved_.arriving);
}

/// The queue for a connection in its phase; null while it is busy.
ConnectionTable::Queue* ConnectionTable::queue_of(const Connection& connection) {
  Waiting& waiting = connection.is_reserved ? reserved_ : waiting_;
  switch (connection.phase) {
    case ConnectionPhase::fresh: return &waiting.fresh;
    case ConnectionPhase::idle: return &waiting.idle;
    case ConnectionPhase::arriving: return &waiting.arriving;
    case ConnectionPhase::finished: return &waiting.finished;
    case ConnectionPhase::busy: break;
  }
  return nullptr;
}

/// Moves the connection's entry to the end of the queue of its phase.
void ConnectionTable::enqueue(Connection& connection) {
  Queue* const queue = queue_of(connection);
  if (queue != nullptr) queue->splice(queue->end(), connection.place);
}

/// Takes the connection's entry back.
void ConnectionTable::dequeue(Connection& connection) {
  Queue* const queue = queue_of(connection);
  if (queue != nullptr) connection.place.splice(connection.place.end(), *queue, connection.at);
}

ConnectionId ConnectionTable::add(const std::string& address, bool is_reserved, Clock::time_point now) {
  const ConnectionId id{next_++};
  Connection added;
  added.address = is_reserved ? std::string() : address;
  added.is_reserved = is_reserved;
  added.since = now;
  added.place.push_back(id);
  added.at = added.place.begin();
  std::size_t* const n_of_address = added.address.empty() ? nullptr : &n_of_address_[added.address];
  Connection& kept = connections_.emplace(id, std::move(added)).first->second;
  // Nothing below throws.
  if (n_of_address != nullptr) ++*n_of_address;
  if (is_reserved) ++n_reserved_;
  enqueue(kept);
  return id;
}

void ConnectionTable::set_phase(ConnectionId connection, ConnectionPhase phase, Clock::time_point now) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  dequeue(found->second);
  found->second.phase = phase;
  found->second.since = now;
  enqueue(found->second);
}

void ConnectionTable::renew(ConnectionId connection, Clock::time_point now) {
  const auto found = connections_.find(connection);
  if (found != connections_.end()) set_phase(connection, found->second.phase, now);
}

void ConnectionTable::remove(ConnectionId connection) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  dequeue(found->second);
  if (found->second.is_reserved) --n_reserved_;
  if (const auto of_address = n_of_address_.find(found->second.address); of_address != n_of_address_.end())
    if (--of_address->second == 0) n_of_address_.erase(of_address);
  connections_.erase(found);
}

}  // namespace baton
