/// PrefixQueue: registrations that wait, leave and are removed.
#include "server/prefixes/prefix_queue.h"

#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

PrefixQueue::Registration asking(std::int64_t exchange, std::string name, std::size_t n_bytes = 1) {
  PrefixQueue::Registration registration;
  registration.exchange = ExchangeId{exchange};
  registration.request.definition = {std::move(name), system_messages(std::string(n_bytes, 'a'))};
  return registration;
}

TEST(PrefixQueue, gives_registrations_out_in_order) {
  PrefixQueue queue(1000);
  EXPECT_FALSE(queue.begin());
  ASSERT_TRUE(queue.push(asking(1, "a")) && queue.push(asking(2, "b")));
  EXPECT_EQ(queue.begin()->exchange, ExchangeId{1});
  queue.end();
  EXPECT_EQ(queue.begin()->request.definition.name, "b");
}

TEST(PrefixQueue, bounds_number_and_bytes_of_those_that_wait) {
  PrefixQueue many(1 << 20);
  for (std::size_t i = 0; i < kMaxQueuedPrefixes; ++i) ASSERT_TRUE(many.push(asking(static_cast<std::int64_t>(i), "a")));
  EXPECT_EQ(many.push(asking(99, "b")).error().code, ErrorCode::unavailable);
  many.begin();
  EXPECT_TRUE(many.push(asking(99, "b")));
  PrefixQueue large(1000);
  EXPECT_TRUE(large.push(asking(0, "a", 5000))) << "one may always wait; its size has a limit of its own";
  EXPECT_FALSE(large.push(asking(1, "b")));
  large.leave(ExchangeId{0});
  EXPECT_TRUE(large.push(asking(1, "b")));
}

TEST(PrefixQueue, forgets_a_client_that_left_and_a_name_that_was_deleted) {
  PrefixQueue queue(1000);
  for (const auto& [exchange, name] : {std::pair(1, "a"), {2, "b"}, {3, "b"}, {4, "c"}})
    ASSERT_TRUE(queue.push(asking(exchange, name)));
  EXPECT_EQ(queue.remove("b"), (std::vector{ExchangeId{2}, ExchangeId{3}}));
  EXPECT_FALSE(queue.leave(ExchangeId{4}));
  EXPECT_EQ(queue.begin()->exchange, ExchangeId{1});
  EXPECT_EQ(queue.cancel_reason(), "");
  EXPECT_FALSE(queue.begin());
}

TEST(PrefixQueue, marks_the_one_that_runs) {
  PrefixQueue queue(1000);
  for (const std::int64_t exchange : {1, 2}) ASSERT_TRUE(queue.push(asking(exchange, "a")));
  queue.begin();
  int n_calls = 0;
  queue.while_running(ExchangeId{2}, [&] { ++n_calls; });
  EXPECT_EQ(n_calls, 0);
  queue.while_running(ExchangeId{1}, [&] { ++n_calls; });
  EXPECT_EQ(n_calls, 1);
  EXPECT_EQ(queue.leave(ExchangeId{1}), "a");
  EXPECT_EQ(queue.cancel_reason(), "its client has left");
  queue.end();
  queue.begin();
  EXPECT_EQ(queue.cancel_reason(), "") << "the next one has its own mark";
  EXPECT_TRUE(queue.remove("a").empty());
  EXPECT_EQ(queue.cancel_reason(), "it was removed");
}

}  // namespace
}  // namespace baton
