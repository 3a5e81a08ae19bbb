/// KvCache with states of recurrent layers: where sequences continue, which snapshots they leave, and which of them go.
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "engine/cache/cache_size.h"
#include "support/kv_tables.h"

namespace baton {
namespace {

using testing::check_all;
using testing::count_up;

constexpr std::int32_t kBlock = 4;

KvCacheOptions state_cache(std::int32_t n_slots, std::int32_t n_owners = 1, std::int32_t n_blocks = 100) {
  return {.block_len = kBlock,
          .groups = {{.n_blocks = n_blocks}},
          .n_state_slots = n_slots,
          .n_state_owners = n_owners,
          .state_interval = 2 * kBlock};
}

/// A sequence whose steps are its own.
class StateRunner {
 public:
  StateRunner(KvCache& cache, std::vector<TokenId> tokens) : cache_(cache), tokens_(std::move(tokens)) {
    cache_.begin(table, tokens_, size(), step);
    cache_.begin_state(table, step);
    n_done = cache_.find_state(table, tokens_, table.n_cached_blocks, step).n_tokens;
  }
  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
  /// Computes the tokens up to `end`.
  StateMove run(std::int32_t end, KeepState keep = KeepState::no) {
    EXPECT_TRUE(cache_.extend(table, end));
    const StateMove move = cache_.move_state(table, tokens_, keep, step++);
    cache_.advance_state(table, end - n_done);
    n_done = end;
    cache_.publish(table, tokens_, end, step);
    return move;
  }
  void end() { cache_.release(table, tokens_, n_done, step); }

  BlockTable table;
  std::int32_t n_done = 0;
  static inline std::int64_t step = 0;

 private:
  KvCache& cache_;
  std::vector<TokenId> tokens_;
};

/// Computes a prompt that stops at `stops`, and ends.
void run_prompt(KvCache& cache, const std::vector<TokenId>& tokens, const std::vector<std::int32_t>& stops) {
  StateRunner runner(cache, tokens);
  KeepState keep = KeepState::no;
  for (const std::int32_t stop : stops) {
    runner.run(stop, keep);
    keep = KeepState::yes;
  }
  runner.run(runner.size(), keep);
  runner.end();
}

/// Tokens from which a sequence with these tokens would continue.
std::int32_t n_found(KvCache& cache, const std::vector<TokenId>& tokens) {
  BlockTable table;
  return cache.find(table, tokens, static_cast<std::int32_t>(tokens.size()), PrefixTree::kAnyStep).n_to_snapshot * kBlock;
}

TEST(KvCacheStates, a_sequence_continues_from_the_last_snapshot_before_its_cached_blocks) {
  KvCache cache(state_cache(6));
  const auto prompt = count_up(1, 43);
  StateRunner first(cache, prompt);
  const StateMove begun = first.run(16);
  EXPECT_EQ(begun.read, StateSlots::kNone);
  const StateMove frozen = first.run(43, KeepState::yes);
  EXPECT_EQ(frozen.read, begun.write);
  EXPECT_NE(frozen.write, begun.write) << "it continues in another slot";
  const StateMove next = first.run(43);
  EXPECT_EQ(next.read, frozen.write);
  EXPECT_EQ(next.write, frozen.write);
  check_all(cache, {&first.table});
  first.end();

  StateRunner second(cache, prompt);
  EXPECT_EQ(second.table.n_cached_blocks, 10) << "keys are shared as ever";
  EXPECT_EQ(second.n_done, 16);
  const StateMove replayed = second.run(43);
  EXPECT_EQ(replayed.read, begun.write) << "a hit copies nothing";
  EXPECT_NE(replayed.write, begun.write);
  second.end();
  check_all(cache, {});
}

TEST(KvCacheStates, drafts_are_kept_until_the_next_run_replays_the_accepted_ones) {
  KvCacheOptions options = state_cache(4);
  options.n_kept_rows = 5;
  KvCache cache(options);
  StateRunner runner(cache, count_up(1, 40));
  runner.run(8);
  const StateMove verifying = runner.run(9);
  EXPECT_EQ(verifying.replayed.n, 0);
  const std::int64_t step = StateRunner::step - 1;
  const KeptRows::Range kept = cache.keep_drafts(runner.table, 3, step);
  EXPECT_EQ(kept.n, 3);
  EXPECT_EQ(cache.kept_rows().n_taken(), 3);
  check_all(cache, {&runner.table});
  cache.accept_drafts(runner.table, 2);
  EXPECT_EQ(cache.kept_rows().n_taken(), 2) << "a rejected draft leaves its row at once";
  runner.n_done = 11;
  const StateMove replaying = runner.run(12);
  EXPECT_EQ(replaying.replayed.first, kept.first);
  EXPECT_EQ(replaying.replayed.n, 2);
  EXPECT_EQ(runner.table.state.n_tokens, 12);
  EXPECT_EQ(cache.kept_rows().n_taken(), 0);
  const KeptRows::Range next = cache.keep_drafts(runner.table, 4, StateRunner::step - 1);
  EXPECT_EQ(next.n, 3) << "the step reads the other rows";
  check_all(cache, {&runner.table});
  // The state of the tokens before the drafts stays, and the drafts go.
  runner.n_done = 12;
  runner.end();
  EXPECT_EQ(cache.kept_rows().n_taken(), 0);
  EXPECT_EQ(n_found(cache, count_up(1, 13)), 12);
  check_all(cache, {});
}

TEST(KvCacheStates, a_snapshot_is_the_state_without_the_accepted_drafts_after_it) {
  KvCacheOptions options = state_cache(4);
  options.n_kept_rows = 5;
  KvCache cache(options);
  const auto tokens = count_up(1, 40);
  StateRunner runner(cache, tokens);
  runner.run(16);
  cache.keep_drafts(runner.table, 2, StateRunner::step - 1);
  cache.accept_drafts(runner.table, 2);
  runner.n_done = 18;
  const std::int32_t own = runner.table.state.own;
  const StateMove move = runner.run(19, KeepState::until_next);
  EXPECT_EQ(move.read, own);
  EXPECT_NE(move.write, own);
  EXPECT_EQ(move.replayed.n, 2);
  EXPECT_EQ(n_found(cache, tokens), 16);
  runner.end();
  check_all(cache, {});
}

TEST(KvCacheStates, a_state_at_the_end_of_cached_blocks_stays_when_its_sequence_ends) {
  KvCache cache(state_cache(2));
  run_prompt(cache, count_up(1, 12), {});
  EXPECT_EQ(n_found(cache, count_up(1, 13)), 12);
  run_prompt(cache, count_up(1, 15), {});
  EXPECT_EQ(cache.states()->n_snapshots(), 1) << "this one ended inside a block";
  // What is known of the tokens ends before the state: a step too many was planned.
  StateRunner ahead(cache, count_up(50, 16));
  ahead.run(16);
  ahead.n_done = 15;
  ahead.end();
  EXPECT_EQ(n_found(cache, count_up(50, 17)), 0);
  check_all(cache, {});
}

TEST(KvCacheStates, a_decoding_sequence_moves_its_snapshot_unless_it_was_found) {
  KvCache cache(state_cache(6, 2));
  const auto tokens = count_up(1, 60);
  StateRunner runner(cache, tokens);
  runner.run(8);
  runner.run(16, KeepState::until_next);
  runner.run(24, KeepState::until_next);
  EXPECT_EQ(cache.states()->n_snapshots(), 1) << "that of 8 tokens moved to 16";
  StateRunner other(cache, count_up(1, 18));
  EXPECT_EQ(other.n_done, 16);
  other.run(18);
  runner.run(32, KeepState::until_next);
  EXPECT_EQ(cache.states()->n_snapshots(), 2);
  EXPECT_EQ(n_found(cache, tokens), 24);
  EXPECT_EQ(n_found(cache, count_up(1, 18)), 16);
  check_all(cache, {&runner.table, &other.table});
  runner.end();
  other.end();
  check_all(cache, {});
}

TEST(KvCacheStates, an_equal_sequence_leaves_its_snapshot_on_the_path_of_the_first) {
  KvCache cache(state_cache(6, 2));
  const auto tokens = count_up(1, 30);
  StateRunner first(cache, tokens), second(cache, tokens);
  first.run(16);
  second.run(16);
  EXPECT_EQ(second.table.n_cached_blocks, 0) << "its blocks stay private";
  second.run(20, KeepState::yes);
  EXPECT_EQ(n_found(cache, tokens), 16);
  const StateMove same = first.run(20, KeepState::yes);
  EXPECT_EQ(same.read, same.write) << "the place has a snapshot";
  check_all(cache, {&first.table, &second.table});
  first.end();
  second.end();
  check_all(cache, {});
}

TEST(KvCacheStates, the_snapshot_that_saves_least_goes_first) {
  KvCache cache(state_cache(4));
  run_prompt(cache, count_up(1, 46), {40});    // saves 40
  run_prompt(cache, count_up(100, 14), {8});   // saves 8
  run_prompt(cache, count_up(200, 30), {16});  // saves 16
  EXPECT_EQ(cache.states()->n_snapshots(), 3);
  run_prompt(cache, count_up(300, 30), {24});
  EXPECT_EQ(n_found(cache, count_up(100, 14)), 0);
  EXPECT_EQ(n_found(cache, count_up(1, 46)), 40);
  EXPECT_EQ(n_found(cache, count_up(200, 30)), 16);
  // A snapshot between two others takes from what the later one saves.
  KvCache other(state_cache(4));
  run_prompt(other, count_up(1, 46), {24, 40});
  run_prompt(other, count_up(200, 30), {20});
  run_prompt(other, count_up(300, 30), {24});
  EXPECT_EQ(n_found(other, count_up(1, 46)), 24) << "40 saved 16 tokens only";
  check_all(other, {});
}

TEST(KvCacheStates, snapshots_that_are_found_outlive_the_others) {
  KvCache cache(state_cache(4));
  const auto shared = count_up(1, 16);
  run_prompt(cache, count_up(1, 20), {16});
  for (TokenId i = 1; i < 40; ++i) {
    run_prompt(cache, count_up(1000 * i, 40), {36});
    auto prompt = shared;
    prompt.push_back(500 + i);
    StateRunner hit(cache, prompt);
    EXPECT_EQ(hit.n_done, 16) << "after " << i;
    hit.run(17);
    hit.end();
  }
  // Not for ever.
  for (TokenId i = 100; i < 200; ++i) run_prompt(cache, count_up(1000 * i, 40), {36});
  EXPECT_EQ(n_found(cache, shared), 0);
}

TEST(KvCacheStates, the_only_slot_is_the_sequences_own) {
  KvCache cache(state_cache(1));
  run_prompt(cache, count_up(1, 12), {});
  StateRunner runner(cache, count_up(1, 20));
  EXPECT_EQ(runner.n_done, 12);
  const StateMove move = runner.run(20);
  EXPECT_EQ(move.read, move.write) << "it continues in the snapshot";
  EXPECT_EQ(cache.states()->n_snapshots(), 0);
  EXPECT_FALSE(cache.can_begin_state(StateRunner::step));
  runner.end();
  check_all(cache, {});
}

TEST(KvCacheStates, snapshots_leave_with_their_blocks) {
  KvCache cache(state_cache(8, 1, 12));
  run_prompt(cache, count_up(1, 44), {16, 32});
  EXPECT_EQ(cache.states()->n_snapshots(), 3);
  run_prompt(cache, count_up(100, 20), {});  // evicts the end of the first
  EXPECT_EQ(n_found(cache, count_up(1, 44)), 16);
  EXPECT_EQ(cache.states()->n_snapshots(), 2) << "that at 16 and that of the second";
  cache.drop_cached();
  EXPECT_EQ(cache.states()->n_snapshots(), 0);
  check_all(cache, {});
}

TEST(KvCacheStates, a_pin_keeps_its_snapshot_while_there_is_room_for_running_sequences) {
  KvCache cache(state_cache(3, 2));
  run_prompt(cache, count_up(1, 16), {});
  const auto pin = pin_beside(cache, {}, count_up(1, 16), 20, 0);
  ASSERT_TRUE(pin) << pin.error().message;
  EXPECT_EQ(cache.states()->n_pinned(), 1);
  for (TokenId i = 1; i < 20; ++i) run_prompt(cache, count_up(1000 * i, 20), {16});
  EXPECT_EQ(n_found(cache, count_up(1, 16)), 16);
  run_prompt(cache, count_up(500, 16), {});
  const auto other = pin_beside(cache, {}, count_up(500, 16), 20, 0);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("memory for 1 snapshot of"), std::string::npos) << other.error().message;
  EXPECT_EQ(cache.n_pinned(), 4);
  cache.unpin(*pin);
  EXPECT_EQ(cache.states()->n_pinned(), 0);
  check_all(cache, {});
}

TEST(KvCacheStates, sizes_of_snapshots) {
  CacheSizeOptions options{.max_num_seqs = 2, .kv_cache_bytes = 4000, .free_memory_bytes = 100'000};
  EXPECT_EQ(choose_snapshots(options, 100, std::nullopt).value(), 10) << "a quarter of the cache";
  EXPECT_EQ(choose_snapshots(options, 1, std::nullopt).value(), kSnapshotsEach * (2 + kKeptContexts));
  EXPECT_EQ(choose_snapshots(options, 100, 0).value(), 0);
  EXPECT_EQ(choose_snapshots(options, 100, 70'050).value(), 700);
  const auto refused = choose_snapshots(options, 100, 100'001);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "--state-cache-memory-bytes 100001: 100000 bytes are free beside the states of 2 sequences");
  options.free_memory_bytes = 500;
  EXPECT_EQ(choose_snapshots(options, 100, std::nullopt).value(), 5);
  options.free_memory_bytes = -7;
  EXPECT_EQ(choose_snapshots(options, 100, std::nullopt).value(), 0);
}

TEST(KvCacheStates, random_commands_keep_every_slot_with_one_holder) {
  std::mt19937 rng(7);
  for (int round = 0; round < 20; ++round) {
    const std::int32_t n_owners = 1 + static_cast<std::int32_t>(rng() % 5);
    KvCache cache(state_cache(n_owners + static_cast<std::int32_t>(rng() % 6), n_owners, 120));
    std::vector<std::unique_ptr<StateRunner>> runners;
    std::vector<KvCache::Pin> pins;
    for (int command = 0; command < 400; ++command) {
      const auto what = rng() % 10;
      if (what < 3 && static_cast<std::int32_t>(runners.size()) < n_owners && cache.can_begin_state(StateRunner::step)) {
        auto tokens = count_up(1, 4 * (rng() % 8));
        while (tokens.empty() || rng() % 12 != 0) tokens.push_back(static_cast<TokenId>(rng() % 2));
        runners.push_back(std::make_unique<StateRunner>(cache, tokens));
        StateRunner& runner = *runners.back();
        runner.run(std::min(runner.size(), runner.n_done + 1 + static_cast<std::int32_t>(rng() % 20)));
      } else if (what < 7 && !runners.empty()) {
        StateRunner& runner = *runners[rng() % runners.size()];
        if (runner.n_done < runner.size())
          runner.run(std::min(runner.size(), runner.n_done + 1 + static_cast<std::int32_t>(rng() % 9)),
                     rng() % 2 == 0 ? KeepState::yes : KeepState::until_next);
      } else if (what == 7 && !runners.empty()) {
        const auto at = runners.begin() + static_cast<std::ptrdiff_t>(rng() % runners.size());
        (*at)->end();
        runners.erase(at);
      } else if (what == 8 && pins.size() < 3) {
        const auto pin = pin_beside(cache, {}, count_up(1, 4 * (1 + rng() % 8)), 60, 0);
        if (pin && pin->node != nullptr && pin->n_blocks > 0) pins.push_back(*pin);
      } else if (what == 9 && !pins.empty()) {
        cache.unpin(pins.back());
        pins.pop_back();
      }
      std::vector<const BlockTable*> tables;
      for (const auto& runner : runners) tables.push_back(&runner->table);
      cache.check_invariants(tables);
    }
    for (const auto& runner : runners) runner->end();
    for (const KvCache::Pin& pin : pins) cache.unpin(pin);
    cache.check_invariants({});
    cache.drop_cached();
    EXPECT_EQ(cache.states()->n_free(), cache.states()->n_slots()) << "a slot leaked";
  }
}

}  // namespace
}  // namespace baton
