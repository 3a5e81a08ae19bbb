#include "core/parallel.h"

#include <atomic>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Parallel, runs_the_body_once_for_each_thread) {
  for (const int n_threads : {1, 2, 5}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(n_threads));
    Parallel(n_threads).for_each_thread([&](int thread) { runs[static_cast<std::size_t>(thread)]++; });
    for (const auto& count : runs) EXPECT_EQ(count, 1);
  }
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
