/// PrefixQueue: registrations that wait, leave and are removed.
#include "server/prefixes/prefix_queue.h"

#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

PrefixRequest asking(std::string name, std::size_t n_bytes = 1) {
  PrefixRequest request;
  request.definition = {std::move(name), system_messages(std::string(n_bytes, 'a'))};
  return request;
}

TEST(PrefixQueue, gives_registrations_out_in_order) {
  PrefixQueue queue(1000);
  EXPECT_EQ(queue.begin(), nullptr);
  ASSERT_TRUE(queue.push(ExchangeId{1}, asking("a")) && queue.push(ExchangeId{2}, asking("b")));
  EXPECT_EQ(queue.begin()->exchange, ExchangeId{1});
  queue.end();
  EXPECT_EQ(queue.begin()->name, "b");
}

TEST(PrefixQueue, bounds_number_and_bytes_of_waiting_ones) {
  PrefixQueue many(1 << 20);
  for (std::size_t i = 0; i < kMaxQueuedPrefixes; ++i)
    ASSERT_TRUE(many.push(ExchangeId{static_cast<std::int64_t>(i)}, asking("a")));
  EXPECT_EQ(many.push(ExchangeId{99}, asking("b")).error().code, ErrorCode::unavailable);
  many.begin();
  EXPECT_TRUE(many.push(ExchangeId{99}, asking("b")));
  PrefixQueue large(1000);
  EXPECT_TRUE(large.push(ExchangeId{0}, asking("a", 5000))) << "one may always wait; its size has a limit of its own";
  EXPECT_FALSE(large.push(ExchangeId{1}, asking("b")));
  large.leave(ExchangeId{0});
  EXPECT_TRUE(large.push(ExchangeId{1}, asking("b")));
}

TEST(PrefixQueue, forgets_a_client_that_left_and_a_name_that_was_deleted) {
  PrefixQueue queue(1000);
  for (const auto& [exchange, name] : {std::pair(1, "a"), {2, "b"}, {3, "b"}, {4, "c"}})
    ASSERT_TRUE(queue.push(ExchangeId{exchange}, asking(name)));
  EXPECT_EQ(queue.remove("b"), (std::vector{ExchangeId{2}, ExchangeId{3}}));
  queue.leave(ExchangeId{4});
  PrefixQueue::Registration* const first = queue.begin();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->exchange, ExchangeId{1});
  EXPECT_EQ(first->cancel.reason(), "");
  queue.end();
  EXPECT_EQ(queue.begin(), nullptr);
}

TEST(PrefixQueue, cancels_the_one_that_runs) {
  PrefixQueue queue(1000);
  for (const std::int64_t exchange : {1, 2}) ASSERT_TRUE(queue.push(ExchangeId{exchange}, asking("a")));
  const PrefixQueue::Registration* running = queue.begin();
  queue.leave(ExchangeId{3});
  EXPECT_FALSE(running->cancel.token().stop_requested());
  queue.leave(ExchangeId{1});
  EXPECT_TRUE(running->cancel.token().stop_requested());
  EXPECT_EQ(running->cancel.reason(), "its client has left");
  queue.end();
  running = queue.begin();
  EXPECT_EQ(running->cancel.reason(), "") << "the next one is another";
  EXPECT_TRUE(queue.remove("a").empty());
  EXPECT_EQ(running->cancel.reason(), "it was removed");
}

}  // namespace
}  // namespace baton
