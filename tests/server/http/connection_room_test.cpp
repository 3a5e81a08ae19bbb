/// Which connections give way to new ones, and what is counted (server/http/connection_table.h).
#include "server/http/connection_table.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr ConnectionRoom::Clock::time_point kStart{std::chrono::seconds(1000)};
constexpr ConnectionRoom::Clock::time_point kLater = kStart + 2 * ConnectionLimits{}.fresh_grace;

class ConnectionRoomTest : public ::testing::Test {
 protected:
  ConnectionId add(std::string address = "a") { return room_.add(std::move(address), /*is_reserved=*/false, kStart); }

  std::set<ConnectionId> with_requests_;
  std::vector<ConnectionId> closed_;
  ConnectionRoom room_{{.max_connections = 2, .max_per_address = 0, .max_reserved = 1},
                       /*n_spare_files=*/2,
                       {.has_unread_request = [this](ConnectionId id) { return with_requests_.contains(id); },
                        .close =
                            [this](ConnectionId id) {
                              closed_.push_back(id);
                              room_.remove(id);
                            }}};
};

TEST_F(ConnectionRoomTest, the_oldest_silent_connection_gives_way) {
  const ConnectionId first = add();
  EXPECT_EQ(room_.make_room("a", kStart), Shortage::none);
  add();
  EXPECT_EQ(room_.counts().open.value(), 2);
  EXPECT_EQ(room_.make_room("a", kStart), Shortage::connections) << "in its first moments none gives way";
  EXPECT_EQ(room_.make_room("a", kLater), Shortage::none);
  EXPECT_EQ(closed_, std::vector{first});
  EXPECT_EQ(room_.counts().open.value(), 1);
  EXPECT_EQ(room_.counts().reclaimed.value(), 1);
}

TEST_F(ConnectionRoomTest, one_whose_request_has_arrived_does_not) {
  const ConnectionId first = add(), second = add();
  with_requests_ = {first};
  EXPECT_EQ(room_.make_room("a", kLater), Shortage::none);
  EXPECT_EQ(closed_, std::vector{second});
  with_requests_ = {first, add()};
  EXPECT_EQ(room_.make_room("a", kLater), Shortage::connections);
}

TEST_F(ConnectionRoomTest, refuses_and_counts_what_finds_no_place_in_the_reserve_either) {
  for (int i = 0; i < 2; ++i) room_.set_phase(add(), ConnectionPhase::busy);
  EXPECT_EQ(room_.make_room("a", kLater), Shortage::connections);
  const ConnectionId reserved = room_.add("a", /*is_reserved=*/true, kLater);
  EXPECT_FALSE(room_.has_reserve());
  EXPECT_EQ(room_.make_room("a", kLater), Shortage::connections);
  EXPECT_EQ(closed_, std::vector{reserved});
  room_.set_phase(room_.add("a", /*is_reserved=*/true, kLater), ConnectionPhase::busy);
  EXPECT_EQ(room_.make_room("a", kLater), std::nullopt);
  EXPECT_EQ(room_.counts().refused_connections.value(), 1);
  EXPECT_EQ(room_.refusal_for(Shortage::connections).message, "2 connections are open, which is this server's limit");
}

TEST_F(ConnectionRoomTest, gives_its_spare_files_when_no_connection_gives_way) {
  room_.tick(kStart);
  EXPECT_TRUE(room_.free_file(kStart));
  EXPECT_TRUE(room_.free_file(kStart));
  EXPECT_FALSE(room_.free_file(kStart));
  const ConnectionId idle = add();
  EXPECT_TRUE(room_.free_file(kLater));
  EXPECT_EQ(closed_, std::vector{idle});
  EXPECT_TRUE(room_.free_file(kLater)) << "the descriptor of the closed one is spare now";
}

}  // namespace
}  // namespace baton
