/// Scheduler: by example, and random loads on a simulated device that sees every read of a block that holds something else.
#include "engine/scheduler.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr std::int32_t kBlockLen = 4;
constexpr TokenId kStop = 0;

std::unique_ptr<Sequence> make_sequence(std::int64_t id, std::vector<TokenId> prompt, std::int32_t max_tokens,
                                        const CacheScope& scope = {}) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = SequenceId{id};
  sequence->request = RequestId{id};
  sequence->prompt_len = static_cast<std::int32_t>(prompt.size());
  sequence->max_len = sequence->prompt_len + max_tokens;
  sequence->tokens = std::move(prompt);
  sequence->table.scope = scope;
  return sequence;
}

std::vector<TokenId> prompt_of(std::size_t n, TokenId first) {
  std::vector<TokenId> tokens(n);
  for (std::size_t i = 0; i < n; ++i) tokens[i] = first + static_cast<TokenId>(i);
  return tokens;
}

/// Outcomes that give `token` to everyone who is due one.
std::vector<StepOutcome> give(const StepPlan& plan, TokenId token) {
  std::vector<StepOutcome> outcomes;
  for (const PlannedSequence& planned : plan.sequences) {
    StepOutcome outcome{planned.id, {}, {}, {}};
    for (std::int32_t i = 0; i < planned.max_tokens; ++i) outcome.tokens.push_back({token, {}, {}});
    outcomes.push_back(outcome);
  }
  return outcomes;
}

TEST(Scheduler, cuts_a_prompt_into_chunks_of_the_budget) {
  KvCache cache(16, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 2, .max_num_batched_tokens = 6}, cache);
  scheduler.add(make_sequence(0, prompt_of(14, 1), 4));
  for (const auto& [first, n, max_tokens] : std::vector<std::array<int, 3>>{{0, 6, 0}, {6, 6, 0}, {12, 2, 1}}) {
    const StepPlan plan = scheduler.plan();
    ASSERT_EQ(plan.sequences.size(), 1u);
    EXPECT_EQ(plan.sequences[0].first_position, first);
    EXPECT_EQ(plan.sequences[0].n_rows, n);
    EXPECT_EQ(plan.sequences[0].max_tokens, max_tokens);
    EXPECT_EQ(plan.reset_slots.size(), first == 0 ? 1u : 0u);
    scheduler.check_invariants();
  }
}

TEST(Scheduler, plans_a_decode_row_before_the_token_is_known) {
  KvCache cache(16, kBlockLen, true);
  Scheduler scheduler({}, cache);
  scheduler.add(make_sequence(0, prompt_of(5, 1), 3));
  const StepPlan first = scheduler.plan();
  const StepPlan second = scheduler.plan();
  ASSERT_EQ(second.sequences.size(), 1u);
  EXPECT_EQ(second.sequences[0].first_position, 5);
  EXPECT_EQ(second.sequences[0].n_rows, 1);
  scheduler.commit(first, give(first, 7));
  EXPECT_EQ(scheduler.find(SequenceId{0})->n_committed, 5);
  const StepPlan third = scheduler.plan();
  ASSERT_EQ(third.sequences.size(), 1u);
  scheduler.commit(second, give(second, 8));
  EXPECT_TRUE(scheduler.plan().is_empty()) << "three tokens are all in flight or known: a row past max_len was planned";
  scheduler.commit(third, give(third, 9));
  EXPECT_EQ(scheduler.find(SequenceId{0})->tokens, (std::vector<TokenId>{1, 2, 3, 4, 5, 7, 8, 9}));
  scheduler.check_invariants();
}

TEST(Scheduler, puts_decodes_before_prefill_and_oldest_first) {
  KvCache cache(32, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 4, .max_num_batched_tokens = 8}, cache);
  scheduler.add(make_sequence(0, prompt_of(20, 100), 4));
  scheduler.add(make_sequence(1, prompt_of(3, 200), 4));
  scheduler.plan();
  scheduler.plan();
  const StepPlan third = scheduler.plan();  // 4 rows end the first prompt, 3 are the second's
  ASSERT_EQ(third.sequences.size(), 2u);
  scheduler.add(make_sequence(2, prompt_of(9, 300), 4));
  const StepPlan fourth = scheduler.plan();
  ASSERT_EQ(fourth.sequences.size(), 3u);
  EXPECT_EQ(fourth.sequences[0].id.value, 0);
  EXPECT_EQ(fourth.sequences[1].id.value, 1);
  EXPECT_EQ(fourth.sequences[2].id.value, 2);
  EXPECT_EQ(fourth.sequences[2].n_rows, 6);
  EXPECT_EQ(fourth.n_rows, 8);
}

TEST(Scheduler, fills_a_common_prompt_once_for_all_that_wait_for_it) {
  KvCache cache(64, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 8, .max_num_batched_tokens = 64}, cache);
  for (std::int64_t id = 0; id < 4; ++id) scheduler.add(make_sequence(id, prompt_of(18, 1), 4));
  scheduler.add(make_sequence(9, prompt_of(6, 500), 4));
  const StepPlan first = scheduler.plan();
  ASSERT_EQ(first.sequences.size(), 2u) << "the others wait for the one that fills; a stranger does not";
  EXPECT_EQ(first.sequences[1].id.value, 9);
  const StepPlan second = scheduler.plan();
  ASSERT_EQ(second.sequences.size(), 5u);
  for (const PlannedSequence& planned : second.sequences) {
    if (planned.id.value == 0 || planned.id.value == 9) continue;
    EXPECT_EQ(planned.first_position, 16);
    EXPECT_EQ(planned.n_rows, 2);
    EXPECT_EQ(scheduler.find(planned.id)->stats.cached_tokens, 16);
  }
  scheduler.check_invariants();
}

TEST(Scheduler, hands_out_what_a_commit_frees_in_the_plan_after_next) {
  KvCache cache(6, kBlockLen, false);
  Scheduler scheduler({.max_num_seqs = 1, .max_num_batched_tokens = 64}, cache);
  scheduler.add(make_sequence(0, prompt_of(8, 1), 12));
  scheduler.add(make_sequence(1, prompt_of(8, 50), 12));
  const StepPlan plan0 = scheduler.plan();
  const std::vector<BlockId> blocks = scheduler.find(SequenceId{0})->table.blocks;
  const StepPlan plan1 = scheduler.plan();  // a row of sequence 0, which step 0 ends
  ASSERT_EQ(plan1.sequences.size(), 1u);
  EXPECT_EQ(plan1.sequences[0].id.value, 0);
  std::vector<StepOutcome> stop{{SequenceId{0}, {}, FinishReason::stop, kStop}};
  scheduler.commit(plan0, stop);
  EXPECT_EQ(scheduler.n_running(), 0);
  const StepPlan plan2 = scheduler.plan();
  ASSERT_EQ(plan2.sequences.size(), 1u);
  EXPECT_EQ(plan2.sequences[0].id.value, 1);
  EXPECT_EQ(plan2.sequences[0].slot, plan0.sequences[0].slot);
  EXPECT_EQ(plan2.reset_slots, std::vector{plan0.sequences[0].slot});
  EXPECT_EQ(scheduler.find(SequenceId{1})->table.blocks[0], blocks[0]);
  scheduler.commit(plan1, give(plan1, 5));  // the dead row's result: skipped
  EXPECT_EQ(scheduler.find(SequenceId{0})->tokens.size(), 8u);
  EXPECT_EQ(scheduler.take_finished().size(), 1u);
  EXPECT_EQ(scheduler.find(SequenceId{0}), nullptr);
  scheduler.check_invariants();
}

TEST(Scheduler, preempts_the_youngest_and_keeps_its_token_in_flight) {
  KvCache cache(5, kBlockLen, false);
  Scheduler scheduler({.max_num_seqs = 4, .max_num_batched_tokens = 64}, cache);
  scheduler.add(make_sequence(0, prompt_of(7, 1), 9));
  scheduler.add(make_sequence(1, prompt_of(6, 50), 9));
  StepPlan in_flight = scheduler.plan();
  ASSERT_EQ(in_flight.sequences.size(), 2u);
  bool was_preempted = false;
  TokenId token = 100;
  for (int step = 0; step < 40 && scheduler.n_running() + scheduler.n_waiting() > 0; ++step) {
    StepPlan next = scheduler.plan();
    if (next.n_preempted > 0) {
      was_preempted = true;
      const Sequence& victim = *scheduler.find(SequenceId{1});
      EXPECT_EQ(victim.state, SequenceState::waiting);
      EXPECT_EQ(victim.n_samples_in_flight, 1);
      EXPECT_EQ(next.sequences.size(), 1u);
    }
    std::vector<StepOutcome> outcomes = give(in_flight, ++token);
    for (StepOutcome& outcome : outcomes) {
      const Sequence* sequence = scheduler.find(outcome.id);
      if (sequence != nullptr && sequence->n_generated() == 8) outcome.finished = FinishReason::length;
    }
    scheduler.commit(in_flight, outcomes);
    scheduler.check_invariants();
    in_flight = std::move(next);
  }
  EXPECT_TRUE(was_preempted);
  const auto ended = scheduler.take_finished();
  ASSERT_EQ(ended.size(), 2u);
  for (const auto& sequence : ended) EXPECT_EQ(sequence->n_generated(), 9);
  EXPECT_EQ(cache.n_used(), 0);
}

TEST(Scheduler, does_not_admit_a_preempted_sequence_before_its_token_is_known) {
  KvCache cache(5, kBlockLen, false);
  Scheduler scheduler({.max_num_seqs = 4, .max_num_batched_tokens = 64}, cache);
  scheduler.add(make_sequence(0, prompt_of(8, 1), 9));
  scheduler.add(make_sequence(1, prompt_of(8, 50), 9));
  const StepPlan first = scheduler.plan();
  ASSERT_EQ(first.sequences.size(), 2u);
  ASSERT_EQ(scheduler.plan().n_preempted, 1);
  scheduler.finish(SequenceId{0}, FinishReason::abort);  // room enough
  EXPECT_TRUE(scheduler.plan().is_empty());
  scheduler.commit(first, give(first, 7));
  const StepPlan again = scheduler.plan();
  ASSERT_EQ(again.sequences.size(), 1u);
  EXPECT_EQ(again.sequences[0].n_rows, 9) << "eight of the prompt and the token that was in flight";
  scheduler.check_invariants();
}

TEST(Scheduler, plans_a_row_again_when_its_commit_is_shorter) {
  KvCache cache(8, kBlockLen, true);
  Scheduler scheduler({}, cache);
  scheduler.add(make_sequence(0, prompt_of(4, 1), 4));
  StepPlan plan = scheduler.plan();
  scheduler.commit(plan, give(plan, 9));
  plan = scheduler.plan();
  EXPECT_EQ(scheduler.find(SequenceId{0})->table.blocks.size(), 2u);
  scheduler.commit(plan, std::vector<StepOutcome>{{SequenceId{0}, {}, {}, {}}});
  EXPECT_EQ(scheduler.find(SequenceId{0})->table.blocks.size(), 1u);
  scheduler.check_invariants();
  const StepPlan again = scheduler.plan();
  EXPECT_EQ(again.sequences[0].first_position, 4);
  EXPECT_EQ(again.sequences[0].n_rows, 1);
}

TEST(Scheduler, ends_a_fill_when_its_last_row_is_committed) {
  KvCache cache(8, kBlockLen, true);
  Scheduler scheduler({.max_num_seqs = 2, .max_num_batched_tokens = 6}, cache);
  scheduler.add(make_sequence(0, prompt_of(8, 1), 0));
  const StepPlan first = scheduler.plan(), second = scheduler.plan();
  EXPECT_EQ(second.sequences[0].max_tokens, 0);
  scheduler.commit(first, give(first, 0));
  EXPECT_TRUE(scheduler.take_finished().empty());
  scheduler.commit(second, give(second, 0));
  EXPECT_EQ(scheduler.take_finished().size(), 1u);
  EXPECT_EQ(cache.n_cached(), 2);
  scheduler.add(make_sequence(1, prompt_of(8, 1), 0));  // all there: ends without a row
  EXPECT_TRUE(scheduler.plan().is_empty());
  EXPECT_EQ(scheduler.take_finished().size(), 1u);
  scheduler.check_invariants();
}

TEST(Scheduler, gives_back_everything_when_a_waiting_or_running_sequence_is_finished) {
  KvCache cache(8, kBlockLen, false);
  Scheduler scheduler({.max_num_seqs = 1, .max_num_batched_tokens = 64}, cache);
  scheduler.add(make_sequence(0, prompt_of(6, 1), 4));
  scheduler.add(make_sequence(1, prompt_of(6, 9), 4));
  const StepPlan plan = scheduler.plan();
  scheduler.finish(SequenceId{1}, FinishReason::abort);
  scheduler.finish(SequenceId{0}, FinishReason::stop);
  scheduler.finish(SequenceId{0}, FinishReason::abort);
  EXPECT_EQ(scheduler.take_finished().size(), 2u);
  scheduler.commit(plan, give(plan, 3));
  EXPECT_EQ(cache.n_used(), 0);
  EXPECT_TRUE(scheduler.plan().is_empty());
  scheduler.check_invariants();
}

/// A device that stores, for each position, a hash of all tokens up to it, and makes the next token from it.
class SimulatedDevice {
 public:
  struct Row {
    std::int32_t slot, position;
    TokenId token;  ///< -1: the slot's last
    bool samples;
    std::int32_t max_tokens;
    std::vector<BlockId> blocks;
    std::vector<TokenId> known;  ///< tokens of the sequence as of the plan, to check what is read
  };
  struct Step {
    StepPlan plan;
    std::vector<Row> rows;
  };
  struct Slot {
    TokenId last = 0;
    int n_generated = 0;
    bool finished = false;
  };

  SimulatedDevice(std::int32_t n_blocks, std::int32_t n_slots)
      : content_(static_cast<std::size_t>(n_blocks * kBlockLen), 0), slots_(static_cast<std::size_t>(n_slots)) {}

  static std::uint64_t chain(std::uint64_t hash, TokenId token) {
    hash = (hash ^ static_cast<std::uint64_t>(token + 1)) * 0x9e3779b97f4a7c15ULL;
    return hash ^ (hash >> 29);
  }
  static std::uint64_t chain(std::span<const TokenId> tokens) {
    std::uint64_t hash = 1;
    for (const TokenId token : tokens) hash = chain(hash, token);
    return hash;
  }
  static TokenId next_token(std::uint64_t hash) { return static_cast<TokenId>((hash >> 40) % 17); }

  std::vector<StepOutcome> run(const Step& step) {
    for (const SlotId slot : step.plan.reset_slots) slots_[static_cast<std::size_t>(slot.value)] = {};
    std::map<std::int32_t, StepOutcome> outcome_of_slot;
    for (const Row& row : step.rows) {
      Slot& slot = slots_[static_cast<std::size_t>(row.slot)];
      const TokenId token = row.token >= 0 ? row.token : slot.last;
      std::uint64_t hash = row.position == 0 ? 1 : at(row, row.position - 1);
      if (slot.finished) {  // a dead row: it may write anything
        at(row, row.position) = 0xdeadULL;
        continue;
      }
      for (std::int32_t i = 0; i < row.position; ++i) {
        if (i >= static_cast<std::int32_t>(row.known.size())) break;
        EXPECT_EQ(at(row, i), chain(std::span(row.known).first(static_cast<std::size_t>(i) + 1)))
            << "position " << i << " was overwritten";
      }
      hash = chain(hash, token);
      at(row, row.position) = hash;
      if (!row.samples) continue;
      StepOutcome& outcome = outcome_of_slot[row.slot];
      slot.last = next_token(hash);
      ++slot.n_generated;
      if (slot.last == kStop) {
        outcome.finished = FinishReason::stop;
        outcome.stop_id = kStop;
      } else {
        outcome.tokens.push_back({slot.last, {}, {}});
        if (slot.n_generated == row.max_tokens) outcome.finished = FinishReason::length;
      }
      slot.finished = outcome.finished.has_value();
    }
    std::vector<StepOutcome> outcomes;
    for (const PlannedSequence& planned : step.plan.sequences) {
      if (planned.max_tokens > 0 && !outcome_of_slot.contains(planned.slot.value)) continue;  // it had ended before
      StepOutcome outcome = outcome_of_slot[planned.slot.value];
      outcome.id = planned.id;
      outcomes.push_back(outcome);
    }
    return outcomes;
  }

 private:
  std::uint64_t& at(const Row& row, std::int32_t position) {
    const BlockId block = row.blocks[static_cast<std::size_t>(position / kBlockLen)];
    return content_[static_cast<std::size_t>(block.value * kBlockLen + position % kBlockLen)];
  }
  std::vector<std::uint64_t> content_;
  std::vector<Slot> slots_;
};

SimulatedDevice::Step build(const Scheduler& scheduler, StepPlan plan) {
  SimulatedDevice::Step step{std::move(plan), {}};
  for (const PlannedSequence& planned : step.plan.sequences) {
    const Sequence& sequence = *scheduler.find(planned.id);
    for (std::int32_t i = 0; i < planned.n_rows; ++i) {
      const std::int32_t position = planned.first_position + i;
      const TokenId token = position < sequence.n_tokens() ? sequence.tokens[static_cast<std::size_t>(position)] : -1;
      step.rows.push_back({planned.slot.value, position, token, planned.max_tokens > 0 && i + 1 == planned.n_rows,
                           sequence.max_len - sequence.prompt_len - sequence.n_before_slot, sequence.table.blocks,
                           sequence.tokens});
    }
  }
  return step;
}

std::vector<TokenId> expected_tokens(std::vector<TokenId> tokens, std::int32_t max_tokens) {
  for (std::int32_t i = 0; i < max_tokens; ++i) {
    const TokenId next = SimulatedDevice::next_token(SimulatedDevice::chain(tokens));
    if (next == kStop) break;
    tokens.push_back(next);
  }
  return tokens;
}

struct LoadOptions {
  std::int32_t n_blocks = 14;
  std::int32_t max_num_seqs = 5;
  std::int32_t max_num_batched_tokens = 11;
  bool caching = true;
  bool with_pin = false;
};

/// Random arrivals and cancellations: every sequence that is not cancelled ends with exactly the tokens that it gets alone.
void run_random_load(std::uint32_t seed, const LoadOptions& options, int n_sequences, int* n_preempted) {
  std::mt19937 rng(seed);
  KvCache cache(options.n_blocks, kBlockLen, options.caching);
  Scheduler scheduler({options.max_num_seqs, options.max_num_batched_tokens}, cache);
  SimulatedDevice device(options.n_blocks, options.max_num_seqs);
  const std::vector<CacheScope> scopes{{}, {}, {"", "x", 8}, {"", "y", 8}};
  std::map<std::int64_t, std::vector<TokenId>> expected;
  std::set<std::int64_t> cancelled;
  std::deque<SimulatedDevice::Step> in_flight;
  std::int64_t next_id = 0;
  const std::int32_t longest = (options.n_blocks - (options.with_pin ? 2 : 0)) * kBlockLen;
  if (options.with_pin) {
    scheduler.add(make_sequence(next_id++, prompt_of(8, 1), 0));
    const auto step = build(scheduler, scheduler.plan());
    scheduler.commit(step.plan, device.run(step));
    scheduler.take_finished();
    EXPECT_EQ(cache.pin({}, prompt_of(8, 1)).n_blocks, 2);
  }

  for (int round = 0; round < 100000; ++round) {
    while (next_id < n_sequences && rng() % 3 == 0) {
      std::vector<TokenId> prompt = prompt_of(4 * (rng() % 4), 1);  // common beginnings
      while (prompt.empty() || rng() % 5 != 0) prompt.push_back(static_cast<TokenId>(1 + rng() % 3));
      if (static_cast<std::int32_t>(prompt.size()) > longest - 2) prompt.resize(static_cast<std::size_t>(longest - 2));
      const auto n = static_cast<std::int32_t>(prompt.size());
      const auto max_tokens = 1 + static_cast<std::int32_t>(rng() % static_cast<std::uint32_t>(std::min(20, longest - n)));
      expected[next_id] = expected_tokens(prompt, max_tokens);
      scheduler.add(make_sequence(next_id++, prompt, max_tokens, scopes[rng() % scopes.size()]));
    }
    if (rng() % 40 == 0 && !expected.empty()) {
      auto at = expected.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(rng() % expected.size()));
      cancelled.insert(at->first);
      scheduler.finish(SequenceId{at->first}, FinishReason::abort);
    }
    StepPlan plan = scheduler.plan();
    scheduler.check_invariants();
    EXPECT_LE(plan.n_rows, options.max_num_batched_tokens);
    *n_preempted += plan.n_preempted;
    const bool is_empty = plan.is_empty();
    if (!is_empty) in_flight.push_back(build(scheduler, std::move(plan)));
    if (in_flight.size() > (is_empty ? 0u : 1u)) {
      scheduler.commit(in_flight.front().plan, device.run(in_flight.front()));
      in_flight.pop_front();
      scheduler.check_invariants();
    } else if (is_empty) {
      ASSERT_EQ(scheduler.n_running() + scheduler.n_waiting(), 0) << "nothing is planned, nothing runs, and sequences wait";
      if (next_id == n_sequences) break;
    }
    for (const auto& sequence : scheduler.take_finished()) {
      if (sequence->finished != FinishReason::abort) {
        EXPECT_EQ(sequence->tokens, expected.at(sequence->id.value)) << "sequence " << sequence->id.value << " seed " << seed;
      }
      expected.erase(sequence->id.value);
    }
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_TRUE(expected.empty());
  EXPECT_EQ(cache.n_used(), options.with_pin ? 2 : 0);
}

TEST(Scheduler, loses_and_repeats_no_token_under_random_load_in_a_tiny_cache) {
  int n_preempted = 0;
  for (const std::uint32_t seed : {1u, 2u, 3u}) {
    run_random_load(seed, {}, 300, &n_preempted);
    run_random_load(seed, {.n_blocks = 9, .max_num_seqs = 8, .max_num_batched_tokens = 30, .caching = true, .with_pin = true},
                    300, &n_preempted);
    run_random_load(seed, {.n_blocks = 11, .max_num_seqs = 3, .max_num_batched_tokens = 5, .caching = false}, 300,
                    &n_preempted);
    run_random_load(seed, {.n_blocks = 200, .max_num_seqs = 16, .max_num_batched_tokens = 64}, 300, &n_preempted);
    run_random_load(seed, {.n_blocks = 12, .max_num_seqs = 6, .max_num_batched_tokens = 2}, 100, &n_preempted);
  }
  EXPECT_GT(n_preempted, 50) << "the load was too light to show anything";
}

}  // namespace
}  // namespace baton
