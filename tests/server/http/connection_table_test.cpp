/// Which connection gives way (server/http/connection_table.h).
#include "server/http/connection_table.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

using Clock = ConnectionTable::Clock;
constexpr Clock::time_point kTableStart{};
constexpr std::chrono::milliseconds kFreshGrace = ConnectionLimits{}.fresh_grace;

TEST(ConnectionTable, counts_connections_in_all_and_of_each_address) {
  ConnectionTable table({.max_connections = 3, .max_per_address = 2, .max_reserved = 1});
  const ConnectionId first = table.add("a", false, kTableStart);
  table.add("a", false, kTableStart);
  EXPECT_EQ(table.shortage("a"), Shortage::address);
  EXPECT_EQ(table.shortage("b"), Shortage::none);
  EXPECT_EQ(table.shortage(""), Shortage::none) << "a Unix socket's clients have no address";
  table.add("b", false, kTableStart);
  EXPECT_EQ(table.shortage("b"), Shortage::connections);
  EXPECT_EQ(table.shortage(""), Shortage::connections);
  table.remove(first);
  table.remove(first);
  EXPECT_EQ(table.n_open(), 2U);
  EXPECT_EQ(table.shortage("a"), Shortage::none);
}

TEST(ConnectionTable, the_one_idle_longest_gives_way_and_busy_ones_never) {
  ConnectionTable table({.max_connections = 3});
  const ConnectionId first = table.add("", false, kTableStart), second = table.add("", false, kTableStart);
  const Clock::time_point later = kTableStart + kFreshGrace;
  EXPECT_EQ(table.reclaimable(later), first);
  table.set_phase(first, ConnectionPhase::busy, kTableStart);
  EXPECT_EQ(table.reclaimable(later), second);
  table.set_phase(first, ConnectionPhase::idle, later);
  EXPECT_EQ(table.reclaimable(later), second);
  table.remove(second);
  EXPECT_EQ(table.reclaimable(later), first);
  table.set_phase(first, ConnectionPhase::busy, later);
  EXPECT_EQ(table.reclaimable(later), std::nullopt);
}

TEST(ConnectionTable, a_fresh_connection_has_a_moment_to_begin_its_request) {
  ConnectionTable table({.max_connections = 3});
  const ConnectionId first = table.add("", false, kTableStart);
  const Clock::time_point soon = kTableStart + kFreshGrace / 2, later = kTableStart + kFreshGrace;
  EXPECT_EQ(table.reclaimable(soon), std::nullopt);
  EXPECT_EQ(table.reclaimable(later), first);
  const ConnectionId second = table.add("", false, soon);
  table.set_phase(second, ConnectionPhase::idle, soon);
  EXPECT_EQ(table.reclaimable(soon), second) << "it has had an answer";
  EXPECT_EQ(table.reclaimable(later), first) << "it has waited longer";
  table.renew(first, later);
  EXPECT_EQ(table.reclaimable(later), second);
  EXPECT_EQ(table.reclaimable(later + kFreshGrace), second);
  table.remove(second);
  EXPECT_EQ(table.reclaimable(later), std::nullopt);
}

TEST(ConnectionTable, one_that_is_finished_gives_way_before_all_others) {
  ConnectionTable table({.max_connections = 3, .max_reserved = 2});
  const Clock::time_point later = kTableStart + kFreshGrace;
  table.add("", false, kTableStart);
  const ConnectionId second = table.add("", false, later);
  table.set_phase(second, ConnectionPhase::finished, later);
  EXPECT_EQ(table.reclaimable(later), second);
  table.add("", true, kTableStart);
  const ConnectionId reserved = table.add("", true, later);
  table.set_phase(reserved, ConnectionPhase::finished, later);
  EXPECT_EQ(table.reclaimable_reserved(), reserved);
}

TEST(ConnectionTable, requests_that_arrive_give_way_after_a_grace_and_beyond_half_of_the_connections) {
  ConnectionTable table({.max_connections = 4});
  const ConnectionId first = table.add("", false, kTableStart), second = table.add("", false, kTableStart);
  const ConnectionId third = table.add("", false, kTableStart);
  for (const ConnectionId id : {first, second}) table.set_phase(id, ConnectionPhase::arriving, kTableStart);
  table.set_phase(third, ConnectionPhase::busy, kTableStart);
  const Clock::time_point later = kTableStart + ConnectionTable::kGrace;
  EXPECT_EQ(table.reclaimable(later), std::nullopt);
  table.set_phase(third, ConnectionPhase::arriving, later);
  EXPECT_EQ(table.reclaimable(kTableStart), std::nullopt);
  EXPECT_EQ(table.reclaimable(later), first);
}

TEST(ConnectionTable, reserved_connections_are_apart) {
  ConnectionTable table({.max_connections = 1, .max_per_address = 1, .max_reserved = 2});
  table.set_phase(table.add("a", false, kTableStart), ConnectionPhase::busy, kTableStart);
  EXPECT_EQ(table.reclaimable_reserved(), std::nullopt);
  const ConnectionId first = table.add("a", true, kTableStart);
  EXPECT_TRUE(table.has_reserve());
  const ConnectionId second = table.add("a", true, kTableStart);
  EXPECT_FALSE(table.has_reserve());
  EXPECT_EQ(table.n_open(), 1U);
  EXPECT_EQ(table.reclaimable(kTableStart + 2 * ConnectionTable::kGrace), std::nullopt);
  EXPECT_EQ(table.reclaimable_reserved(), first);
  table.set_phase(first, ConnectionPhase::arriving, kTableStart + ConnectionTable::kGrace);
  EXPECT_EQ(table.reclaimable_reserved(), second) << "it has been silent for longer";
  table.set_phase(first, ConnectionPhase::busy, kTableStart);
  EXPECT_EQ(table.reclaimable_reserved(), second);
  table.remove(second);
  EXPECT_TRUE(table.has_reserve());
}

}  // namespace
}  // namespace baton
