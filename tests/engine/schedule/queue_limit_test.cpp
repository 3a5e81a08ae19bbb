/// QueueLimit: a queue that is full for the tenant that filled it, and for the size of its requests.
#include "engine/schedule/queue_limit.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(QueueLimit, counts_all_sequences_against_the_limit) {
  QueueLimit queue(10);
  EXPECT_TRUE(queue.has_room({0}, 50)) << "none waits";
  queue.add({0}, 8);
  EXPECT_TRUE(queue.has_room({0}, 2));
  EXPECT_FALSE(queue.has_room({0}, 3));
  queue.remove({0}, 3);
  EXPECT_TRUE(queue.has_room({0}, 5));
  EXPECT_EQ(queue.size(), 5);
}

TEST(QueueLimit, a_tenant_that_fills_the_queue_does_not_keep_out_others) {
  QueueLimit queue(12);
  queue.add({0}, 12);
  EXPECT_FALSE(queue.has_room({0}, 1));
  EXPECT_TRUE(queue.has_room({1}, 6));
  EXPECT_FALSE(queue.has_room({1}, 7)) << "more than its share";
  queue.add({1}, 5);
  EXPECT_TRUE(queue.has_room({1}, 1));
  EXPECT_FALSE(queue.has_room({1}, 2));
  EXPECT_TRUE(queue.has_room({2}, 4));
  EXPECT_FALSE(queue.has_room({2}, 5));
  EXPECT_FALSE(queue.has_room({0}, 1)) << "it has more than its share";
  queue.remove({0}, 12);
  EXPECT_TRUE(queue.has_room({1}, 7));
  EXPECT_EQ(queue.size(), 5);
}

TEST(QueueLimit, a_size_that_fills_the_queue_does_not_keep_out_others) {
  QueueLimit queue(12);
  queue.add({0, 5}, 12);
  EXPECT_FALSE(queue.has_room({0, 5}, 1));
  EXPECT_TRUE(queue.has_room({0, 2}, 6));
  EXPECT_FALSE(queue.has_room({0, 2}, 7)) << "more than its share";
  queue.add({0, 2}, 5);
  EXPECT_TRUE(queue.has_room({0, 2}, 1));
  EXPECT_FALSE(queue.has_room({0, 2}, 2));
  EXPECT_TRUE(queue.has_room({0, 3}, 4)) << "a third of the queue for each of three sizes";
  EXPECT_FALSE(queue.has_room({0, 3}, 5));
  queue.remove({0, 5}, 12);
  EXPECT_TRUE(queue.has_room({0, 5}, 7)) << "the queue is not full";
  EXPECT_EQ(queue.size(), 5);
}

TEST(QueueLimit, sizes_share_what_is_their_tenants) {
  QueueLimit queue(24);
  for (std::size_t size = 0; size < 6; ++size) queue.add({0, size}, 4);
  queue.add({1, 5}, 11);
  EXPECT_TRUE(queue.has_room({1, 5}, 1)) << "half of the queue, however many sizes the other tenant has";
  EXPECT_FALSE(queue.has_room({1, 5}, 2));
  EXPECT_TRUE(queue.has_room({1, 2}, 6)) << "a half of the half";
  EXPECT_FALSE(queue.has_room({1, 2}, 7));
  EXPECT_TRUE(queue.has_room({0, 6}, 1)) << "a seventh of the half";
  EXPECT_FALSE(queue.has_room({0, 6}, 2));
  EXPECT_FALSE(queue.has_room({0, 5}, 1));
}

TEST(QueueLimit, none_is_no_limit) {
  QueueLimit queue(0);
  queue.add({0}, 1 << 20);
  EXPECT_TRUE(queue.has_room({0}, 1 << 20));
}

}  // namespace
}  // namespace baton
