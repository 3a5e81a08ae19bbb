/// The port of rank 0.
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "ranks/rank_group.h"

namespace baton {
namespace {

TEST(RankListener, a_taken_port_is_named) {
  const auto first = RankListener::bind("127.0.0.1", 0);
  ASSERT_TRUE(first);
  const auto second = RankListener::bind("127.0.0.1", first->port());
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("port " + std::to_string(first->port())), std::string::npos) << second.error().message;
}

TEST(RankListener, an_address_of_no_host_is_named) {
  const auto listener = RankListener::bind("no-such-host.invalid", 0);
  ASSERT_FALSE(listener);
  EXPECT_NE(listener.error().message.find("no-such-host.invalid"), std::string::npos) << listener.error().message;
}

TEST(RankListener, a_free_port_is_found_and_given_away_once) {
  auto listener = RankListener::bind("127.0.0.1", 0);
  ASSERT_TRUE(listener);
  EXPECT_GT(listener->port(), 0);
  RankListener moved = std::move(*listener);
  EXPECT_EQ(listener->port(), 0);
  EXPECT_GT(moved.port(), 0);
}

}  // namespace
}  // namespace baton
