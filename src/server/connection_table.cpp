/// Counting connections and queueing those that may give way.
#include "server/connection_table.h"

#include <utility>

namespace baton {

Shortage ConnectionTable::shortage(const std::string& address) const {
  if (limits_.max_per_address > 0 && !address.empty()) {
    const auto found = n_of_address_.find(address);
    if (found != n_of_address_.end() && found->second >= limits_.max_per_address) return Shortage::address;
  }
  return n_open() >= limits_.max_connections ? Shortage::connections : Shortage::none;
}

std::optional<ConnectionId> ConnectionTable::reclaimable(Clock::time_point now) const {
  if (!idle_.empty()) return idle_.front();
  if (arriving_.size() <= limits_.max_connections / 2) return std::nullopt;
  const ConnectionId oldest = arriving_.front();
  return now - connections_.at(oldest).since >= kGrace ? std::optional(oldest) : std::nullopt;
}

std::optional<ConnectionId> ConnectionTable::reclaimable_reserved() const {
  return reserved_.empty() ? std::nullopt : std::optional(reserved_.front());
}

/// The queue for a connection in its phase; null while it is busy.
ConnectionTable::Queue* ConnectionTable::queue_of(const Connection& connection) {
  if (connection.phase == ConnectionPhase::busy) return nullptr;
  if (connection.is_reserved) return &reserved_;
  return connection.phase == ConnectionPhase::idle ? &idle_ : &arriving_;
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
