/// Which connection gives way, and what is counted and logged.
#include "server/http/connection_room.h"

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

}  // namespace baton
