/// Order, bounds and the end of text work (server/limits/text_queue.h).
#include "server/limits/text_queue.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/limits/thread_time.h"

namespace baton {
namespace {

constexpr std::size_t kLong = TextQueue::kLongBytes + 1;

bool push(TextQueue& queue, std::size_t n_bytes, std::function<void()> run, std::function<void(std::string_view)> refuse = {}) {
  return queue.push({TextQueue::Kind::text, {}, n_bytes, std::move(run), std::move(refuse)});
}

TEST(TextQueue, does_short_work_while_long_work_runs_and_waits) {
  Budget places(/*limit=*/1000, /*small=*/1);
  ThreadWatch watch(std::chrono::milliseconds(0));
  TextQueue queue(places, watch, /*n_short_threads=*/1, thread_time);
  std::promise<void> goes_on;
  const std::shared_future<void> may_go_on = goes_on.get_future().share();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(push(queue, kLong, [=] { may_go_on.wait(); }));
  std::promise<void> done;
  EXPECT_TRUE(push(queue, 10, [&] { done.set_value(); }));
  done.get_future().wait();  // if it does not come, ctest ends the test
  goes_on.set_value();
}

TEST(TextQueue, refuses_what_finds_no_place_and_keeps_places_for_short_work) {
  Budget places(/*limit=*/64, /*small=*/1);
  ThreadWatch watch(std::chrono::milliseconds(0));
  TextQueue queue(places, watch, /*n_short_threads=*/1, thread_time);
  std::promise<void> goes_on, has_begun;
  const std::shared_future<void> may_go_on = goes_on.get_future().share();
  EXPECT_TRUE(push(queue, kLong, [&has_begun, may_go_on] {
    has_begun.set_value();
    may_go_on.wait();
  }));
  has_begun.get_future().wait();
  std::atomic<int> n_done = 0;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(push(queue, kLong, [&] { ++n_done; }));
  EXPECT_FALSE(push(queue, kLong, [&] { ++n_done; }));
  EXPECT_EQ(places.n_refused(), 1);
  EXPECT_TRUE(push(queue, 1, [&] { ++n_done; }));
  goes_on.set_value();
  std::promise<void> last;
  while (!push(queue, kLong, [&] { last.set_value(); })) std::this_thread::yield();
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
    ThreadWatch watch(std::chrono::milliseconds(0));
    TextQueue queue(places, watch, /*n_short_threads=*/1, thread_time);
    std::promise<void> has_begun;
    std::atomic<bool> is_stopping = false;
    push(queue, kLong, [&] {
      has_begun.set_value();
      while (!is_stopping) std::this_thread::yield();
    });
    has_begun.get_future().wait();
    for (int i = 0; i < 10; ++i) push(queue, kLong, [kept] { ADD_FAILURE() << "it was not dropped"; });
    std::thread stopper([&] { queue.stop(); });
    while (kept.use_count() > 1) std::this_thread::yield();
    is_stopping = true;
    stopper.join();
  }
  EXPECT_EQ(places.used(), 0);
}

TEST(TextQueue, tells_of_each_work_that_it_drops) {
  Budget places(/*limit=*/1000, /*small=*/1);
  ThreadWatch watch(std::chrono::milliseconds(0));
  TextQueue queue(places, watch, /*n_short_threads=*/1, thread_time);
  std::promise<void> has_begun;
  push(queue, kLong, [&] {
    has_begun.set_value();
    while (!queue.is_stopping()) std::this_thread::yield();
  });
  has_begun.get_future().wait();
  std::atomic<int> n_dropped = 0;
  for (int i = 0; i < 10; ++i)
    EXPECT_TRUE(push(
        queue, kLong, [] { ADD_FAILURE() << "it was not dropped"; }, [&](std::string_view) { ++n_dropped; }));
  queue.stop();
  EXPECT_EQ(n_dropped, 10);
  EXPECT_TRUE(push(
      queue, 1, [] { ADD_FAILURE() << "it was not dropped"; }, [&](std::string_view) { ++n_dropped; }));
  EXPECT_EQ(n_dropped, 11);
  EXPECT_EQ(places.used(), 0);
}

TEST(TextQueue, refuses_work_that_finds_no_memory) {
  Budget places(/*limit=*/1000, /*small=*/1);
  ThreadWatch watch(std::chrono::milliseconds(0));
  TextQueue queue(places, watch, /*n_short_threads=*/1, thread_time);
  std::promise<std::string> refused;
  EXPECT_TRUE(push(
      queue, 1, [] { throw std::bad_alloc(); }, [&](std::string_view why) { refused.set_value(std::string(why)); }));
  EXPECT_EQ(refused.get_future().get(), TextQueue::kNoMemory);
}

TEST(TextQueue, long_work_never_delays_short_work_however_much_of_it_waits) {
  Budget places(/*limit=*/1000, /*small=*/1);
  ThreadWatch watch(std::chrono::milliseconds(0));
  TextQueue queue(places, watch, /*n_short_threads=*/1, thread_time);
  std::promise<void> goes_on;
  const std::shared_future<void> may_go_on = goes_on.get_future().share();
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(push(queue, kLong, [=] { may_go_on.wait(); }));
  for (int i = 0; i < 100; ++i) {
    std::promise<void> done;
    EXPECT_TRUE(push(queue, 10, [&] { done.set_value(); }));
    done.get_future().wait();
  }
  goes_on.set_value();
}

TEST(TextQueue, work_that_is_running_sees_that_the_queue_stops) {
  Budget places(/*limit=*/1000, /*small=*/1);
  ThreadWatch watch(std::chrono::milliseconds(0));
  TextQueue queue(places, watch, /*n_short_threads=*/1, thread_time);
  std::promise<void> has_begun;
  EXPECT_FALSE(queue.is_stopping());
  push(queue, kLong, [&] {
    has_begun.set_value();
    while (!queue.is_stopping()) std::this_thread::yield();
  });
  has_begun.get_future().wait();
  queue.stop();
  EXPECT_TRUE(queue.is_stopping());
}

/// Work that continues when the test says so.
class Held {
 public:
  std::function<void()> work() {
    return [this, may_go_on = goes_on_.get_future().share()] {
      begun_.count_down();
      may_go_on.wait();
    };
  }
  void wait() { begun_.wait(); }
  void go_on() { goes_on_.set_value(); }

 private:
  std::promise<void> goes_on_;
  std::latch begun_{1};
};

TEST(TextQueue, has_as_many_threads_for_short_work_as_the_cores_allow) {
  EXPECT_EQ(TextQueue::n_short_threads_for(1), 1);
  EXPECT_EQ(TextQueue::n_short_threads_for(2), 1);
  EXPECT_EQ(TextQueue::n_short_threads_for(8), 4);
  EXPECT_EQ(TextQueue::n_short_threads_for(128), 8);
  Budget places(/*limit=*/1000, /*small=*/1);
  ThreadWatch watch(std::chrono::milliseconds(0));
  TextQueue queue(places, watch, /*n_short_threads=*/3, thread_time);
  // None of the three, nor the thread of long work, which has nothing else to do, ends before all have begun.
  std::latch all(4);
  std::latch ended(4);
  for (int i = 0; i < 4; ++i)
    EXPECT_TRUE(push(queue, 1, [&] {
      all.arrive_and_wait();
      ended.count_down();
    }));
  ended.wait();
}

TEST(TextQueue, pages_wait_for_no_text_and_texts_for_no_page) {
  Budget places(/*limit=*/1000, /*small=*/1);
  ThreadWatch watch(std::chrono::milliseconds(0));
  TextQueue queue(places, watch, /*n_short_threads=*/1, thread_time);
  Held page, text, long_text;
  EXPECT_TRUE(queue.push({TextQueue::Kind::page, {}, 0, page.work()}));
  EXPECT_TRUE(push(queue, kLong, long_text.work()));
  page.wait();
  long_text.wait();
  EXPECT_TRUE(push(queue, 1, text.work()));
  text.wait();
  page.go_on();
  std::latch shown(1);
  EXPECT_TRUE(queue.push({TextQueue::Kind::page, {}, 0, [&] { shown.count_down(); }}));
  shown.wait();
  text.go_on();
  long_text.go_on();
}

/// The tenants in the order in which one thread has worked for them, while it was held up at first.
std::vector<std::int32_t> order_of(TextQueue& queue, TextQueue::Kind kind, const std::vector<Tenant>& tenants,
                                   std::size_t n_bytes) {
  Held first;
  EXPECT_TRUE(queue.push({kind, {.id = 99}, n_bytes, first.work()}));
  first.wait();
  std::vector<std::int32_t> order;
  std::latch ended(static_cast<std::ptrdiff_t>(tenants.size()));
  for (const Tenant& tenant : tenants)
    EXPECT_TRUE(queue.push({kind, tenant, n_bytes, [&, tenant] {
                              order.push_back(tenant.id);
                              ended.count_down();
                            }}));
  first.go_on();
  ended.wait();
  return order;
}

TEST(TextQueue, a_flood_of_one_key_does_not_hold_up_another_one) {
  Budget places(/*limit=*/10'000, /*small=*/1);
  ThreadWatch watch(std::chrono::milliseconds(0));
  TextQueue queue(places, watch, /*n_short_threads=*/1, thread_time);
  std::vector<Tenant> tenants(100, Tenant{.id = 1});
  tenants.push_back({.id = 2});
  for (const auto& [kind, n_bytes] : {std::pair{TextQueue::Kind::page, std::size_t{0}}, {TextQueue::Kind::text, kLong}}) {
    const std::vector<std::int32_t> order = order_of(queue, kind, tenants, n_bytes);
    EXPECT_LE(std::ranges::find(order, 2) - order.begin(), 1);
  }
}

/// A thread's time that passes when the test says so.
class CountedTime {
 public:
  TextQueue::ThreadTime clock() {
    return [this] { return std::chrono::microseconds(n_.load()); };
  }
  void pass(std::chrono::microseconds time) { n_ += time.count(); }

 private:
  std::atomic<std::int64_t> n_ = 0;
};

TEST(TextQueue, work_costs_its_key_the_time_that_its_thread_has_had) {
  Budget places(/*limit=*/10'000, /*small=*/1);
  ThreadWatch watch(std::chrono::milliseconds(0));
  CountedTime time;
  TextQueue queue(places, watch, /*n_short_threads=*/1, time.clock());
  std::latch ended(1);
  EXPECT_TRUE(queue.push({TextQueue::Kind::page, {.id = 1}, 0, [&] {
                            time.pass(std::chrono::milliseconds(1));
                            ended.count_down();
                          }}));
  ended.wait();
  std::vector<Tenant> tenants(10, Tenant{.id = 2});
  tenants.insert(tenants.begin(), Tenant{.id = 1});
  // The other key's ten pages, which take no time and are estimated at 50 us each, come before the second one of this key.
  EXPECT_EQ(order_of(queue, TextQueue::Kind::page, tenants, 0).back(), 1);
}

TEST(TextQueue, no_key_takes_all_places) {
  Budget places(/*limit=*/64, /*small=*/1);
  ThreadWatch watch(std::chrono::milliseconds(0));
  TextQueue queue(places, watch, /*n_short_threads=*/1, thread_time);
  Held held;
  EXPECT_TRUE(queue.push({TextQueue::Kind::page, {}, 0, held.work()}));
  held.wait();
  const auto push_pages = [&](std::int32_t tenant) {
    int n = 0;
    while (queue.push({TextQueue::Kind::page, {.id = tenant}, 0, [] {}})) ++n;
    return n;
  };
  EXPECT_EQ(push_pages(1), 48);
  EXPECT_EQ(push_pages(2), 12);
  EXPECT_EQ(places.n_refused(), 2);
  EXPECT_EQ(push_pages(0), 4) << "a server without keys has one tenant, which may have all";
  held.go_on();
  while (places.used() > 0) std::this_thread::yield();
  EXPECT_TRUE(queue.push({TextQueue::Kind::page, {.id = 1}, 0, [] {}}));
}

}  // namespace
}  // namespace baton
