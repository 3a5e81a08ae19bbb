/// Ranks as threads of the test: what runs in processes otherwise.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "ranks/rank_group.h"

namespace baton::testing {

/// Calls `body` once for each of `n` ranks, at the same time, and waits for all.
inline void run_ranks(int n, RankOptions options, const std::function<void(const std::shared_ptr<RankGroup>&)>& body) {
  options.world_size = n;
  auto groups = RankGroup::make_threads(options);
  ASSERT_TRUE(groups) << groups.error().message;
  std::vector<std::thread> threads;
  for (const auto& group : *groups) threads.emplace_back([&body, &group] { body(group); });
  for (std::thread& thread : threads) thread.join();
}
inline void run_ranks(int n, const std::function<void(const std::shared_ptr<RankGroup>&)>& body) { run_ranks(n, {}, body); }

}  // namespace baton::testing
