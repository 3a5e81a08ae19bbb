/// Scheduler: several tenants share slots, rows and blocks by weight, and one that floods does not keep out another.
#include "engine/schedule/scheduler.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/long_run.h"
#include "support/scheduler_driver.h"
#include "support/sequence_editor.h"
#include "support/shared_scheduler.h"

namespace baton {
namespace {

using testing::make_sequence;
using testing::prompt_of;
using testing::SchedulerDriver;
using testing::Shared;

constexpr Tenant kFlood{0, 1};
constexpr Tenant kOther{1, 1};

std::int64_t steps_alone(const SchedulerOptions& options, std::int32_t n_blocks, std::int32_t prompt_len) {
  Shared alone(options, n_blocks);
  return alone.steps_to_first_token(alone.add(kOther, alone.own_prompt(prompt_len), 5));
}

TEST(SchedulerTenants, first_token_comes_within_twice_the_steps_while_another_tenant_floods) {
  constexpr SchedulerOptions kOptions{.max_num_seqs = 16, .max_num_batched_tokens = 96};
  for (const std::int32_t prompt_len : {1, 38, 90, 400}) {
    for (const std::int32_t flood_len : {3, 60}) {
      Shared shared(kOptions, /*n_blocks=*/1500);
      for (int i = 0; i < 1000; ++i) shared.add(kFlood, shared.own_prompt(flood_len), 60);
      for (int i = 0; i < 50; ++i) shared.step();
      const std::int64_t alone = steps_alone(kOptions, 1500, prompt_len);
      for (int i = 0; i < 3; ++i) {
        const std::int64_t id = shared.add(kOther, shared.own_prompt(prompt_len), 5);
        const std::int64_t beside = shared.steps_to_first_token(id);
        EXPECT_LE(beside, 2 * alone + 1) << "prompt of " << prompt_len << " beside prompts of " << flood_len;
        EXPECT_GT(beside, 0);
        for (int step = 0; step < 30; ++step) shared.step();
      }
    }
  }
}

/// Steps with prompts of another tenant have 32 / 4 decodes of a tenant with the same weight.
constexpr SchedulerOptions kManyDecodes{.max_num_seqs = 32, .max_num_batched_tokens = 256, .max_prefill_tokens = 32};
constexpr std::int32_t kShare = 32 / 4;

/// Fills all slots with sequences of the flood; as many wait.
void begin_flood(Shared& shared) {
  for (int i = 0; i < 400; ++i) shared.add(kFlood, shared.own_prompt(3), 60);
  while (shared.n_decodes[kFlood.id] < 24) shared.step();
}

TEST(SchedulerTenants, a_first_token_waits_for_no_more_decodes_than_the_share_of_their_tenant) {
  for (const std::int32_t weight : {1, 2, 1000}) {
    const Tenant other{kOther.id, weight};
    Shared shared(kManyDecodes, 1500);
    begin_flood(shared);
    const std::int64_t id = shared.add(other, shared.own_prompt(50), 5);
    while (shared.scheduler.find(SequenceId{id})->n_rows_left() > 1) {
      shared.step();
      ASSERT_GT(shared.n_rows[other.id], 10) << "it is admitted at once, and its prompt comes first";
      EXPECT_EQ(shared.n_decodes[kFlood.id], std::max(1, kShare / weight));
    }
    shared.step();
    EXPECT_GE(shared.n_decodes[kFlood.id], 20) << "all decode again";
  }
}

TEST(SchedulerTenants, no_sequence_starves_while_its_tenant_is_held_back) {
  Shared shared(kManyDecodes, 1500);
  begin_flood(shared);
  std::map<SequenceId, std::int32_t> n_without_row;
  std::int32_t longest = 0;
  std::int32_t n_short = 0;
  const std::int64_t flood_before = shared.cost[kFlood.id];
  for (int i = 0; i < 200; ++i) {
    while (shared.scheduler.n_waiting() < 300) shared.add(kFlood, shared.own_prompt(3), 60);
    while (shared.n_of(kOther.id) < 3) shared.add(kOther, shared.own_prompt(90), 1);
    const std::set<SequenceId> decoding = shared.decoding_of(kFlood.id);
    shared.step();
    n_short += shared.n_decodes[kFlood.id] <= kShare ? 1 : 0;
    std::erase_if(n_without_row, [&](const auto& entry) { return !decoding.contains(entry.first); });
    for (const SequenceId id : decoding) {
      if (shared.has_row(id) || shared.is_waiting(id)) {
        n_without_row.erase(id);
      } else {
        longest = std::max(longest, ++n_without_row[id]);
      }
    }
  }
  EXPECT_GT(n_short, 100) << "the other tenant always has prompts";
  EXPECT_GE(longest, 2);
  EXPECT_LE(longest, 32 / kShare) << "they take turns";
  const auto flood = static_cast<double>(shared.cost[kFlood.id] - flood_before);
  EXPECT_NEAR(flood / static_cast<double>(shared.cost[kOther.id]), 1, 0.15) << "equal weights, equal service";
}

TEST(SchedulerTenants, a_tenant_that_has_had_less_service_is_not_held_back) {
  Shared shared(kManyDecodes, 1500);
  shared.add(kFlood, shared.own_prompt(900), 1);
  for (int i = 0; i < 3; ++i) shared.step();
  for (int i = 0; i < 16; ++i) shared.add(kOther, shared.own_prompt(1), 60);
  shared.step();
  for (int i = 0; i < 3; ++i) {
    const std::size_t n_decoding = shared.decoding_of(kOther.id).size();
    shared.step();
    EXPECT_GT(n_decoding, kShare);
    EXPECT_EQ(shared.n_decodes[kOther.id], n_decoding);
    EXPECT_GT(shared.n_rows[kFlood.id], 10);
  }
}

TEST(SchedulerTenants, every_decode_has_its_row_beside_prompts_of_its_own_tenant) {
  Shared shared(kManyDecodes, 1500);
  begin_flood(shared);
  shared.add(kFlood, shared.own_prompt(100), 1, /*priority=*/-1);
  for (int i = 0; i < 5; ++i) {
    const std::size_t n_decoding = shared.decoding_of(kFlood.id).size();
    shared.step();
    EXPECT_EQ(shared.n_decodes[kFlood.id], n_decoding);
  }
}

TEST(SchedulerTenants, steps_stay_short_while_a_tenant_that_was_there_may_come_back) {
  constexpr SchedulerOptions kOptions{.max_num_seqs = 16, .max_num_batched_tokens = 96, .max_prefill_tokens = 24};
  Shared shared(kOptions, /*n_blocks=*/1500);
  const auto rows_of_next_step = [&] {
    const std::int64_t before = shared.cost[kFlood.id];
    shared.add(kFlood, shared.own_prompt(300), 1);
    shared.step();
    return shared.cost[kFlood.id] - before;
  };
  EXPECT_EQ(rows_of_next_step(), 96);
  shared.run_to_end();
  shared.steps_to_first_token(shared.add(kOther, shared.own_prompt(5), 1));
  shared.add(kFlood, shared.own_prompt(5), 1);
  shared.add(kOther, shared.own_prompt(5), 1);
  shared.run_to_end();
  EXPECT_EQ(rows_of_next_step(), 24);
  shared.run_to_end();
}

TEST(SchedulerTenants, no_load_mixes_up_what_was_preempted_with_what_is_in_flight) {
  int n_preempted = 0;
  const std::uint32_t n_loads = testing::is_long_run() ? 100 : 20;
  for (std::uint32_t seed = 0; seed < n_loads; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::int32_t>(random() % n); };
    Shared shared({.max_num_seqs = 4, .max_num_batched_tokens = 24, .max_prefill_tokens = 12}, /*n_blocks=*/45);
    for (int i = 0; i < 40; ++i) {
      shared.add({below(3), 1 + below(3)}, shared.own_prompt(1 + below(100)), 1 + below(30));
      for (std::int32_t n = below(6); n > 0; --n) shared.step();
    }
    shared.run_to_end();
    n_preempted += shared.n_preempted;
  }
  EXPECT_GT(n_preempted, static_cast<int>(n_loads));
}

TEST(SchedulerTenants, a_flood_that_fills_the_cache_makes_way) {
  constexpr SchedulerOptions kOptions{.max_num_seqs = 16, .max_num_batched_tokens = 64};
  constexpr std::int32_t kBlocks = 100;
  Shared shared(kOptions, kBlocks);
  for (int i = 0; i < 1000; ++i) shared.add(kFlood, shared.own_prompt(20), 150);
  for (int i = 0; i < 40; ++i) shared.step();
  ASSERT_LT(shared.scheduler.n_running(), 16) << "blocks are short, not slots";
  const std::int64_t alone = steps_alone(kOptions, kBlocks, 60);
  EXPECT_LE(shared.steps_to_first_token(shared.add(kOther, shared.own_prompt(60), 5)), 3 * alone);
  EXPECT_GT(shared.n_preempted, 0);
}

TEST(SchedulerTenants, a_tenant_that_comes_while_another_has_all_slots_is_admitted_next) {
  Shared shared({.max_num_seqs = 4, .max_num_batched_tokens = 64}, 400);
  for (int i = 0; i < 1000; ++i) shared.add(kFlood, shared.own_prompt(8), 4);
  for (int i = 0; i < 7; ++i) shared.step();
  const std::int64_t id = shared.add(kOther, shared.own_prompt(8), 4);
  shared.step();
  EXPECT_EQ(shared.scheduler.find(SequenceId{id})->schedule->state, SequenceState::running);
  EXPECT_LE(shared.n_preempted, 1);
}

/// Adds a sequence whose prompt no other has.
SequenceId add(SchedulerDriver& driver, Tenant tenant, std::size_t prompt_len, std::int32_t max_tokens) {
  auto sequence =
      make_sequence(driver.next_id(), prompt_of(prompt_len, static_cast<TokenId>(1000 * driver.next_id())), max_tokens);
  SequenceEditor::task(*sequence).tenant = tenant;
  return SequenceId{driver.add(std::move(sequence))};
}

/// The sequence that is preempted is then the first one of its tenant, and by weight its tenant comes before the other.
TEST(SchedulerTenants, room_that_a_tenant_makes_goes_to_the_sequence_it_was_made_for) {
  SchedulerDriver driver({.max_num_seqs = 7, .max_num_batched_tokens = 7}, {{.n_blocks = 7}});
  const SequenceId first = add(driver, {0, 1}, 1, 1);
  const SequenceId waits = add(driver, {0, 2}, 5, 1);
  const SequenceId large = add(driver, {1, 3}, 17, 10);
  EXPECT_EQ(driver.plan().admitted, (std::vector{first, large}));
  driver.commit_oldest();
  const StepPlan& plan = driver.plan();
  EXPECT_EQ(plan.n_preempted, 1);
  EXPECT_EQ(plan.admitted, std::vector{waits});
  driver.run_to_end(100);
}

/// Each step is committed before the next plan, as on a device that gains nothing by a plan made ahead.
TEST(SchedulerTenants, no_load_stops_at_an_empty_plan_while_sequences_wait) {
  int n_preempted = 0;
  const std::uint32_t n_loads = testing::is_long_run() ? 60 : 12;
  for (std::uint32_t seed = 0; seed < n_loads; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::int32_t>(random() % n); };
    const std::uint32_t n_blocks = 6 + random() % 30;
    SchedulerDriver driver(
        {.max_num_seqs = 2 + below(6), .max_num_batched_tokens = 8 + below(20), .max_prefill_tokens = below(16)},
        {{.n_blocks = static_cast<std::int32_t>(n_blocks)}});
    while (driver.next_id() < 40) {
      while (below(4) == 0) {
        const Tenant tenant{below(3), 1 + below(4)};
        const std::uint32_t prompt_len = 1 + random() % (2 * n_blocks);
        add(driver, tenant, prompt_len, 1 + below(2 * n_blocks - 1));
      }
      const StepPlan& plan = driver.plan();
      n_preempted += plan.n_preempted;
      const bool is_last = plan.is_empty() && !plan.needs_another();
      driver.commit_oldest();
      driver.take();
      ASSERT_TRUE(!is_last || driver.n_unfinished() == 0);
    }
    driver.run_to_end(100'000);
  }
  EXPECT_GT(n_preempted, static_cast<int>(n_loads));
}

TEST(SchedulerTenants, seldom_preempts_while_both_tenants_have_their_share) {
  Shared shared({.max_num_seqs = 4, .max_num_batched_tokens = 64}, 400);
  for (int i = 0; i < 2; ++i) shared.add(kOther, shared.own_prompt(8), 400);
  for (int i = 0; i < 100; ++i) shared.add(kFlood, shared.own_prompt(8), 400);
  shared.step();
  for (int i = 0; i < 100; ++i) shared.add(kOther, shared.own_prompt(8), 400);
  shared.run_to_end();
  EXPECT_LE(shared.n_preempted, 20) << "of 202 sequences";
}

TEST(SchedulerTenants, service_goes_by_weight_while_both_have_work) {
  for (const std::int32_t weight : {1, 4}) {
    Shared shared({.max_num_seqs = 12, .max_num_batched_tokens = 50}, 3000);
    for (int i = 0; i < 300; ++i) {
      shared.add({0, 1}, shared.own_prompt(100), 6);
      shared.add({1, weight}, shared.own_prompt(30), 25);
    }
    for (int i = 0; i < 200; ++i) shared.step();
    EXPECT_NEAR(static_cast<double>(shared.cost[1]) / static_cast<double>(shared.cost[0]), weight, 0.15 * weight);
  }
}

TEST(SchedulerTenants, a_tenant_alone_may_take_everything) {
  Shared shared({.max_num_seqs = 8, .max_num_batched_tokens = 64}, 400);
  const std::int64_t gone = shared.add(kOther, shared.own_prompt(10), 2);
  shared.steps_to_first_token(gone);
  for (int i = 0; i < 4; ++i) shared.step();
  for (int i = 0; i < 20; ++i) shared.add(kFlood, shared.own_prompt(40), 30);
  for (int i = 0; i < 12; ++i) shared.step();
  EXPECT_EQ(shared.n_running_of(0), 8);
}

TEST(SchedulerTenants, a_high_priority_of_one_tenant_takes_nothing_from_another) {
  constexpr SchedulerOptions kOptions{.max_num_seqs = 4, .max_num_batched_tokens = 64};
  Shared shared(kOptions, 400);
  for (int i = 0; i < 1000; ++i) shared.add(kFlood, shared.own_prompt(20), 50, /*priority=*/-5);
  for (int i = 0; i < 20; ++i) shared.step();
  EXPECT_LE(shared.steps_to_first_token(shared.add(kOther, shared.own_prompt(30), 5)), 3 * steps_alone(kOptions, 400, 30));
}

TEST(SchedulerTenants, several_tenants_in_a_tiny_cache_all_end_with_the_tokens_that_they_get_alone) {
  for (std::uint32_t seed = 0; seed < (testing::is_long_run() ? 30u : 6u); ++seed) {
    std::mt19937 rng(seed);
    const auto any = [&rng](std::uint32_t n) { return static_cast<std::int32_t>(rng() % n); };
    Shared shared({.max_num_seqs = 1 + any(6), .max_num_batched_tokens = 6 + any(30), .max_prefill_tokens = any(2) * 9},
                  14 + any(20));
    for (int i = 0; i < 150; ++i) {
      std::vector<TokenId> prompt = prompt_of(static_cast<std::size_t>(4 * any(5)), 1);
      while (prompt.empty() || any(4) != 0) prompt.push_back(1 + any(3));
      prompt.resize(std::min<std::size_t>(prompt.size(), 30));
      const std::int32_t tenant = any(4);
      shared.add({tenant, tenant + 1}, prompt, 1 + any(20));
      for (int n = any(4); n > 0; --n) shared.step();
    }
    shared.run_to_end();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace baton
