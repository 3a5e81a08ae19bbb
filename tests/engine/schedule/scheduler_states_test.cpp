/// Where prompts of models with recurrent layers leave snapshots (engine/schedule/scheduler_states.cpp).
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "support/scheduler_driver.h"

namespace baton {
namespace {

using testing::kBlockLen;
using testing::make_sequence;
using testing::prompt_of;
using testing::SchedulerDriver;

constexpr std::int32_t kInterval = 4 * kBlockLen;

struct Prompts {
  explicit Prompts(std::int32_t interval)
      : driver({.max_num_seqs = 4, .max_num_batched_tokens = 200, .state_snapshot_interval = interval}, {{.n_blocks = 400}},
               true, 0, 4 + 60) {}

  /// Positions where steps ended before the prompt did.
  std::vector<std::int32_t> stops_of(std::int32_t n_tokens, TokenId first) {
    const std::int64_t id =
        driver.add(make_sequence(driver.next_id(), prompt_of(static_cast<std::size_t>(n_tokens), first), 1));
    std::vector<std::int32_t> stops;
    do {
      for (const PlannedSequence& planned : driver.plan().sequences)
        if (planned.id.value == id && planned.first_position + planned.n_rows < n_tokens)
          stops.push_back(planned.first_position + planned.n_rows);
    } while (driver.commit_behind() || driver.is_unfinished(id));
    return stops;
  }
  /// Tokens that a prompt computes of those whose keys are there.
  std::int32_t replayed_of(const std::vector<TokenId>& prompt) {
    const std::int64_t id = driver.add(make_sequence(driver.next_id(), prompt, 1));
    driver.plan();
    const std::int32_t n = driver.scheduler.find(SequenceId{id})->schedule->n_replayed;
    while (driver.commit_behind() || driver.is_unfinished(id)) driver.plan();
    return n;
  }

  SchedulerDriver driver;
};

TEST(SchedulerStates, an_interval_ends_steps_at_its_multiples_in_prompts) {
  const std::int32_t near_end = (200 - 1 - 16) / kBlockLen * kBlockLen;
  EXPECT_EQ(Prompts(0).stops_of(200, 1), std::vector<std::int32_t>{near_end});
  std::vector<std::int32_t> expected;
  for (std::int32_t stop = kInterval; stop <= near_end; stop += kInterval) expected.push_back(stop);
  if (near_end - expected.back() >= SchedulerDriver::kStateInterval - kBlockLen) expected.push_back(near_end);
  Prompts prompts(kInterval);
  EXPECT_EQ(prompts.stops_of(200, 1), expected);
  EXPECT_EQ(prompts.driver.cache.states()->n_snapshots(), static_cast<std::int32_t>(expected.size()) + 1) << "and at its end";
}

TEST(SchedulerStates, an_unannounced_fork_replays_less_than_the_interval) {
  for (const std::int32_t n_shared : {kBlockLen, kInterval, 2 * kInterval - kBlockLen, 150}) {
    const auto forked = [&] {
      std::vector<TokenId> prompt = prompt_of(200, 1);
      for (std::size_t i = static_cast<std::size_t>(n_shared); i < prompt.size(); ++i) prompt[i] += 1000;
      return prompt;
    }();
    const std::int32_t n_found = n_shared / kBlockLen * kBlockLen;
    Prompts without(0);
    without.replayed_of(prompt_of(200, 1));
    EXPECT_EQ(without.replayed_of(forked), n_found);
    Prompts with(kInterval);
    EXPECT_EQ(with.replayed_of(prompt_of(200, 1)), 0);
    EXPECT_EQ(with.replayed_of(forked), n_found % kInterval) << n_shared;
    with.driver.expect_empty();
  }
}

}  // namespace
}  // namespace baton
