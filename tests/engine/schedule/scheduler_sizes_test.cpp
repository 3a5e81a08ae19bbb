/// Scheduler: short requests do not wait for long ones, long ones do not starve, and no step is lost by it.
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/schedule/scheduler.h"
#include "support/shared_scheduler.h"

namespace baton {
namespace {

using testing::Shared;

SchedulerOptions options_of(bool by_size, std::int32_t max_prefill_tokens = 0) {
  return {.by_size = by_size, .max_num_seqs = 8, .max_num_batched_tokens = 64, .max_prefill_tokens = max_prefill_tokens};
}

/// The most steps to a small request's first token, of several that come one after another after long ones.
std::int64_t steps_behind_long_ones(bool by_size, int n_long) {
  Shared shared(options_of(by_size), /*n_blocks=*/1000);
  for (int i = 0; i < n_long; ++i) shared.add(shared.own_prompt_of_long_answer(10, 100), 100);
  for (int i = 0; i < 20; ++i) shared.step();
  std::int64_t most = 0;
  for (int i = 0; i < 6; ++i) {
    most = std::max(most, shared.steps_to_first_token(shared.add(shared.own_prompt(4), 1)));
    for (int step = 0; step < 5; ++step) shared.step();
  }
  shared.run_to_end();
  return most;
}

TEST(SchedulerSizes, a_short_request_gets_a_slot_soon_after_long_ones) {
  // Its cost is 8. Sequences that have less than 16 times as much left, 32 tokens, are not much longer: they end soon.
  constexpr std::int64_t kMost = kFullPlans + kMuchLonger * 8 / FairQueue::kTokenCost + 4;
  for (const int n_long : {8, 24}) {
    EXPECT_GT(steps_behind_long_ones(/*by_size=*/false, n_long), kMost);
    EXPECT_LE(steps_behind_long_ones(/*by_size=*/true, n_long), kMost);
  }
}

TEST(SchedulerSizes, requests_of_one_size_are_served_in_the_order_of_arrival) {
  Shared shared(options_of(/*by_size=*/true), 3000);
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 100; ++i) ids.push_back(shared.add(shared.own_prompt(10 + i % 5), 20));
  std::size_t n_begun = 0;
  while (n_begun < ids.size()) {
    shared.step();
    std::size_t n = 0;
    while (n < ids.size() && (shared.scheduler.find(SequenceId{ids[n]}) == nullptr || !shared.is_waiting(SequenceId{ids[n]})))
      ++n;
    for (std::size_t i = n; i < ids.size(); ++i) EXPECT_TRUE(shared.is_waiting(SequenceId{ids[i]}));
    n_begun = n;
  }
  EXPECT_EQ(shared.n_preempted, 0);
  shared.run_to_end();
}

TEST(SchedulerSizes, long_requests_end_though_short_ones_never_stop_coming) {
  Shared shared(options_of(/*by_size=*/true), 3000);
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 16; ++i) ids.push_back(shared.add(shared.own_prompt(10), 100));
  std::int64_t cost = 0;
  while (std::ranges::any_of(ids, [&](std::int64_t id) { return shared.scheduler.find(SequenceId{id}) != nullptr; })) {
    while (shared.scheduler.n_waiting() < 40) shared.add(shared.own_prompt(4), 3);
    shared.step();
    cost = 0;
    for (const auto& [tenant, n] : shared.cost) cost += n;
    ASSERT_LT(shared.n_steps, 10'000) << "they starve";
  }
  // They cost 16 x 410, and their size has at least half of the service. What was preempted is computed again.
  EXPECT_LE(cost, 2.5 * 16 * 410);
}

/// Requests of very different sizes, some of them sharing prompts, in a cache that they fill or not.
struct Mix {
  std::int64_t n_steps = 0, n_preempted = 0, n_recomputed = 0;
};
Mix run_mix(bool by_size, std::int32_t n_blocks, std::uint32_t seed) {
  Shared shared(options_of(by_size, /*max_prefill_tokens=*/24), n_blocks);
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::int32_t>(random() % n); };
  for (int i = 0; i < 150; ++i) {
    const bool is_short = below(3) == 0;
    if (is_short) {
      shared.add(shared.own_prompt(1 + below(8)), 1 + below(4));
    } else if (below(4) == 0) {
      shared.add(testing::prompt_of(40, 7), 1 + below(80));
    } else {
      const std::int32_t n_new = 20 + below(40);
      shared.add(shared.own_prompt_of_long_answer(1 + below(60), n_new), n_new);
    }
    for (std::int32_t n = below(6); n > 0; --n) shared.step();
  }
  shared.run_to_end();
  return {shared.n_steps, shared.n_preempted, shared.n_recomputed};
}

TEST(SchedulerSizes, costs_no_steps_and_changes_no_answer) {
  for (const std::int32_t n_blocks : {60, 1000}) {
    Mix by_arrival, by_size;
    for (std::uint32_t seed = 0; seed < 3; ++seed) {
      const Mix one = run_mix(false, n_blocks, seed);
      const Mix other = run_mix(true, n_blocks, seed);
      by_arrival.n_steps += one.n_steps;
      by_size.n_steps += other.n_steps;
      by_size.n_preempted += other.n_preempted - one.n_preempted;
      by_size.n_recomputed += other.n_recomputed - one.n_recomputed;
    }
    EXPECT_LE(static_cast<double>(by_size.n_steps), 1.03 * static_cast<double>(by_arrival.n_steps)) << n_blocks << " blocks";
    RecordProperty(std::to_string(n_blocks) + "_steps_ratio", std::to_string(1.0 * by_size.n_steps / by_arrival.n_steps));
    RecordProperty(std::to_string(n_blocks) + "_preempted", std::to_string(by_size.n_preempted));
    RecordProperty(std::to_string(n_blocks) + "_recomputed", std::to_string(by_size.n_recomputed));
  }
}

TEST(SchedulerSizes, a_sequence_that_leaves_its_slot_computes_no_more_than_a_block_again) {
  Shared shared(options_of(/*by_size=*/true), 3000);
  for (int i = 0; i < 16; ++i) shared.add(shared.own_prompt_of_long_answer(10, 100), 100);
  for (int i = 0; i < 8; ++i) {
    for (int step = 0; step < 10; ++step) shared.step();
    shared.steps_to_first_token(shared.add(shared.own_prompt(4), 1));
  }
  EXPECT_GE(shared.n_preempted, 3);
  EXPECT_LE(shared.n_recomputed, shared.n_preempted * testing::kBlockLen);
  shared.run_to_end();
}

TEST(SchedulerSizes, no_slot_is_taken_while_the_cache_is_full) {
  Shared shared(options_of(/*by_size=*/true), /*n_blocks=*/60);
  for (int i = 0; i < 30; ++i) shared.add(shared.own_prompt(20), 100);
  for (int i = 0; i < 10; ++i) shared.step();
  const int n_before = shared.n_preempted;
  const std::int64_t id = shared.add(shared.own_prompt(230), 2);
  for (int i = 0; i < 2 * kFullPlans; ++i) shared.step();
  EXPECT_TRUE(shared.is_waiting(SequenceId{id}));
  EXPECT_LE(shared.n_preempted, n_before + 8) << "only for want of blocks";
}

}  // namespace
}  // namespace baton
