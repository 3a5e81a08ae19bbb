/// Order, bounds and the end of text work (server/text_queue.h).
#include "server/text_queue.h"

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr std::size_t kLong = TextQueue::kLongBytes + 1;

TEST(TextQueue, does_short_work_while_long_work_runs_and_waits) {
  Budget places(/*limit=*/1000, /*small=*/1);
  TextQueue queue(places);
  std::promise<void> goes_on;
  const std::shared_future<void> may_go_on = goes_on.get_future().share();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(queue.push(kLong, [=] { may_go_on.wait(); }));
  std::promise<void> done;
  EXPECT_TRUE(queue.push(10, [&] { done.set_value(); }));
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  goes_on.set_value();
}

TEST(TextQueue, refuses_what_finds_no_place_and_keeps_places_for_short_work) {
  Budget places(/*limit=*/64, /*small=*/1);
  TextQueue queue(places);
  std::promise<void> goes_on, has_begun;
  const std::shared_future<void> may_go_on = goes_on.get_future().share();
  EXPECT_TRUE(queue.push(kLong, [&has_begun, may_go_on] {
    has_begun.set_value();
    may_go_on.wait();
  }));
  has_begun.get_future().wait();
  std::atomic<int> n_done = 0;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.push(kLong, [&] { ++n_done; }));
  EXPECT_FALSE(queue.push(kLong, [&] { ++n_done; }));
  EXPECT_EQ(places.n_refused(), 1);
  EXPECT_TRUE(queue.push(1, [&] { ++n_done; }));
  goes_on.set_value();
  std::promise<void> last;
  while (!queue.push(kLong, [&] { last.set_value(); })) std::this_thread::yield();
  last.get_future().wait();
  while (n_done < 4) std::this_thread::yield();
  queue.stop();
  EXPECT_EQ(n_done, 4);
  EXPECT_EQ(places.used(), 0);
}

TEST(TextQueue, drops_what_has_not_begun_when_it_stops) {
  Budget places(/*limit=*/1000, /*small=*/1);
  const auto kept = std::make_shared<int>(1);
  {
    TextQueue queue(places);
    std::promise<void> has_begun;
    std::atomic<bool> is_stopping = false;
    queue.push(kLong, [&] {
      has_begun.set_value();
      while (!is_stopping) std::this_thread::yield();
    });
    has_begun.get_future().wait();
    for (int i = 0; i < 10; ++i) queue.push(kLong, [kept] { ADD_FAILURE() << "it was not dropped"; });
    std::thread stopper([&] { queue.stop(); });
    while (kept.use_count() > 1) std::this_thread::yield();
    is_stopping = true;
    stopper.join();
  }
  EXPECT_EQ(places.used(), 0);
}

TEST(TextQueue, tells_of_each_work_that_it_drops) {
  Budget places(/*limit=*/1000, /*small=*/1);
  TextQueue queue(places);
  std::promise<void> has_begun;
  queue.push(kLong, [&] {
    has_begun.set_value();
    while (!queue.is_stopping()) std::this_thread::yield();
  });
  has_begun.get_future().wait();
  std::atomic<int> n_dropped = 0;
  for (int i = 0; i < 10; ++i)
    EXPECT_TRUE(queue.push(
        kLong, [] { ADD_FAILURE() << "it was not dropped"; }, [&] { ++n_dropped; }));
  queue.stop();
  EXPECT_EQ(n_dropped, 10);
  EXPECT_TRUE(queue.push(
      1, [] { ADD_FAILURE() << "it was not dropped"; }, [&] { ++n_dropped; }));
  EXPECT_EQ(n_dropped, 11);
  EXPECT_EQ(places.used(), 0);
}

TEST(TextQueue, long_work_never_delays_short_work_however_much_of_it_waits) {
  Budget places(/*limit=*/1000, /*small=*/1);
  TextQueue queue(places);
  std::promise<void> goes_on;
  const std::shared_future<void> may_go_on = goes_on.get_future().share();
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(queue.push(kLong, [=] { may_go_on.wait(); }));
  for (int i = 0; i < 100; ++i) {
    std::promise<void> done;
    EXPECT_TRUE(queue.push(10, [&] { done.set_value(); }));
    ASSERT_EQ(done.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready) << i;
  }
  goes_on.set_value();
}

TEST(TextQueue, work_that_is_running_sees_that_the_queue_stops) {
  Budget places(/*limit=*/1000, /*small=*/1);
  TextQueue queue(places);
  std::promise<void> has_begun;
  EXPECT_FALSE(queue.is_stopping());
  queue.push(kLong, [&] {
    has_begun.set_value();
    while (!queue.is_stopping()) std::this_thread::yield();
  });
  has_begun.get_future().wait();
  queue.stop();
  EXPECT_TRUE(queue.is_stopping());
}

}  // namespace
}  // namespace baton
