#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Parallel, runs_each_part_once_and_no_two_at_a_time_as_the_same_thread) {
  for (const int n_threads : {1, 2, 5}) {
    const Parallel parallel(n_threads);
    for (const std::int64_t n_parts : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(n_parts));
      std::vector<std::atomic<int>> running(static_cast<std::size_t>(n_threads));
      std::atomic<bool> is_alone = true;
      parallel.for_parts(n_parts, [&](std::int64_t part, int thread) {
        if (running[static_cast<std::size_t>(thread)]++ != 0) is_alone = false;
        runs[static_cast<std::size_t>(part)]++;
        running[static_cast<std::size_t>(thread)]--;
      });
      for (const auto& count : runs) ASSERT_EQ(count, 1) << n_threads << " threads, " << n_parts << " parts";
      EXPECT_TRUE(is_alone);
    }
  }
}

TEST(Parallel, a_loop_sees_what_the_one_before_wrote) {
  const Parallel parallel(4);
  std::vector<std::int64_t> values(64, 0);
  for (int loop = 1; loop <= 20000; ++loop) {
    // Each element is written by another part than in the loop before, and so usually by another thread.
    parallel.for_parts(8, [&](std::int64_t part, int) {
      for (std::size_t i = 0; i < 8; ++i) values[static_cast<std::size_t>((part + loop) % 8) * 8 + i]++;
    });
  }
  for (const std::int64_t value : values) EXPECT_EQ(value, 20000);
}

TEST(Parallel, throws_on_the_callers_thread_what_parts_threw_when_all_have_ended) {
  for (const int n_threads : {2, 5}) {
    const Parallel parallel(n_threads);
    for (int thrower = 0; thrower < n_threads; ++thrower) {
      std::atomic<int> n_begun = 0, n_ended = 0;
      // Each thread has one part, because none ends before all have begun.
      const auto run = [&] {
        parallel.for_parts(n_threads, [&](std::int64_t, int thread) {
          n_begun++;
          while (n_begun < n_threads) std::this_thread::yield();
          n_ended++;
          if (thread == thrower) throw std::bad_alloc();
        });
      };
      EXPECT_THROW(run(), std::bad_alloc);
      EXPECT_EQ(n_ended, n_threads);
      std::atomic<int> n_after = 0;
      parallel.for_parts(100, [&](std::int64_t, int) { n_after++; });
      EXPECT_EQ(n_after, 100);
    }
  }
}

TEST(Parallel, a_thread_that_is_held_up_leaves_its_parts_to_the_others) {
  const Parallel parallel(2);
  std::atomic<bool> is_held = true;
  std::vector<int> thread_of(100, -1);
  std::atomic<int> n_done = 0;
  // The part of thread 1 (or 0) ends only when all others are done, so the other thread must have run both halves.
  parallel.for_parts(100, [&](std::int64_t part, int thread) {
    thread_of[static_cast<std::size_t>(part)] = thread;
    if (is_held.exchange(false))
      while (n_done < 99) std::this_thread::yield();
    n_done++;
  });
  EXPECT_EQ(std::ranges::count(thread_of, 0) == 1 || std::ranges::count(thread_of, 1) == 1, true);
}

TEST(Parallel, serves_loops_after_its_threads_went_to_sleep) {
  Parallel first(3);
  std::atomic<int> n_runs = 0;
  for (int loop = 0; loop < 20; ++loop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    first.for_parts(9, [&](std::int64_t, int) { n_runs++; });
  }
  EXPECT_EQ(n_runs, 180);
  const Parallel moved(std::move(first));
  moved.for_parts(9, [&](std::int64_t, int) { n_runs++; });
  EXPECT_EQ(n_runs, 189);
}

TEST(Parallel, ranges_cover_everything_once_in_multiples_of_the_grain) {
  for (const int n_threads : {1, 2, 3}) {
    for (const std::int64_t count : {0, 1, 15, 16, 17, 100, 1000}) {
      for (const std::int64_t grain : {1, 16, 64}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
        Parallel(n_threads).for_ranges(count, grain, [&](std::int64_t begin, std::int64_t end) {
          EXPECT_EQ(begin % grain, 0);
          for (std::int64_t i = begin; i < end; ++i) seen[static_cast<std::size_t>(i)]++;
        });
        for (const auto& times : seen) ASSERT_EQ(times, 1) << count << " elements, grain " << grain;
      }
    }
  }
}

}  // namespace
}  // namespace baton
