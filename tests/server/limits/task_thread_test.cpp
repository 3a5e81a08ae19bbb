/// A thread for tasks, timers and signals (server/limits/task_thread.h).
#include "server/limits/task_thread.h"

#include <chrono>
#include <latch>
#include <memory>
#include <new>
#include <vector>

#include <gtest/gtest.h>
#include <boost/asio/steady_timer.hpp>

namespace baton {
namespace {

/// How often the calling thread's reserve gives memory until it has no more.
int n_blocks_of_this_thread() {
  for (int n = 0;; ++n) {
    try {
      std::get_new_handler()();
    } catch (const std::bad_alloc&) {
      return n;
    }
  }
}

TEST(TaskThread, has_its_whole_reserve_in_each_task_and_handler) {
  TaskThread thread("tasks");
  std::vector<int> n_blocks;
  std::latch ended(3);
  boost::asio::steady_timer timer(thread.io());
  const auto count = [&] {
    n_blocks.push_back(n_blocks_of_this_thread());
    ended.count_down();
  };
  for (int i = 0; i < 2; ++i) thread.post(count);
  thread.post([&] {
    timer.expires_after(std::chrono::milliseconds(0));
    timer.async_wait([&](const boost::system::error_code&) { count(); });
  });
  ended.wait();
  thread.stop();
  thread.join();
  EXPECT_EQ(n_blocks, std::vector<int>(3, 6)) << "of eight blocks a quarter is for destructors";
}

TEST(TaskThread, fails_a_task_that_finds_no_memory_until_there_is_some) {
  TaskThread thread("tasks");
  int n_failed = 0;
  std::latch ended(2);
  thread.post([] { throw std::bad_alloc(); },
              [&] {
                if (++n_failed < 3) throw std::bad_alloc();
                ended.count_down();
              });
  thread.post([&] { ended.count_down(); }, [] { ADD_FAILURE() << "there was memory"; });
  ended.wait();
  EXPECT_EQ(n_failed, 3);
}

TEST(TaskThread, drops_what_has_not_begun_when_it_stops) {
  const auto kept = std::make_shared<int>(1);
  {
    TaskThread thread("tasks");
    std::latch begun(1), goes_on(1);
    thread.post([&] {
      begun.count_down();
      goes_on.wait();
    });
    begun.wait();
    thread.post([kept] { ADD_FAILURE() << "it was not dropped"; });
    thread.stop();
    goes_on.count_down();
    thread.join();
  }
  EXPECT_EQ(kept.use_count(), 1);
}

}  // namespace
}  // namespace baton
