/// KvCache with states of recurrent layers and a host tier, over a device that remembers what each slot and block holds: every run
/// begins with the state of its tokens, whatever was saved, loaded and given up.
#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "support/kv_tables.h"

namespace baton {
namespace {

using testing::check_all;
using testing::count_up;

constexpr std::int32_t kLen = 16;

KvCacheOptions tiered_cache(std::int32_t n_slots, std::int32_t n_owners, std::int32_t n_blocks, std::int32_t n_tier_slots,
                            std::int32_t n_tier_states) {
  return {.block_len = kLen,
          .groups = {{.n_blocks = n_blocks}},
          .n_tier_slots = n_tier_slots,
          .n_tier_states = n_tier_states,
          .n_state_slots = n_slots,
          .n_state_owners = n_owners,
          .state_interval = 2 * kLen};
}

/// What a slot or a block holds: the tokens from which it was computed. All tokens of a sequence up to its end.
using Contents = std::vector<TokenId>;

/// Carries out copies and runs in the order of the plans.
struct TestDevice {
  explicit TestDevice(const KvCacheOptions& options)
      : states(static_cast<std::size_t>(options.n_state_slots)),
        blocks(static_cast<std::size_t>(options.groups[0].n_blocks)),
        host_states(static_cast<std::size_t>(options.n_tier_states)),
        host_blocks(static_cast<std::size_t>(options.n_tier_slots)) {}
  static Contents& at(std::vector<Contents>& memory, std::int32_t slot) { return memory.at(static_cast<std::size_t>(slot)); }

  void copy(const std::vector<TierCopy>& copies) {
    for (const TierCopy& copy : copies) {
      const bool is_state = copy.group == TierCopy::kStates;
      Contents& device = at(is_state ? states : blocks, copy.block.value);
      Contents& host = at(is_state ? host_states : host_blocks, copy.slot);
      (copy.kind == TierCopy::Kind::save ? host : device) = copy.kind == TierCopy::Kind::save ? device : host;
    }
  }

  std::vector<Contents> states, blocks, host_states, host_blocks;
};

/// A sequence as the scheduler leads it: it loads, then runs.
class TieredRunner {
 public:
  TieredRunner(KvCache& cache, TestDevice& device, std::vector<TokenId> tokens)
      : cache_(cache), device_(device), tokens_(std::move(tokens)) {
    cache_.begin(table, tokens_, size(), step);
    cache_.begin_state(table, step);
    n_done = table.n_cached_blocks * kLen;
  }
  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
  /// Loads at most `n_most` blocks; the state once all are there. Whether it may run.
  bool load(std::int32_t n_most) {
    const std::int32_t n = std::min(cache_.n_in_tier(table, tokens_, size(), n_done / kLen, n_most + 1), n_most);
    std::int32_t n_loaded = 0;
    if (n > 0 && cache_.extend(table, n_done + n * kLen)) n_loaded = cache_.load(table, tokens_, n_done / kLen, n, step);
    n_done += n_loaded * kLen;
    if (n_loaded == n && n == n_most) return false;
    n_had_keys = n_done;
    found = cache_.find_state(table, tokens_, n_done / kLen, step);
    n_done = found.n_tokens;
    return is_ready = true;
  }
  /// Computes tokens up to `end`, in a step of its own. Whether there were blocks.
  bool run(std::int32_t end, KeepState keep = KeepState::no) {
    if (!cache_.extend(table, end)) return false;
    const StateMove move = cache_.move_state(table, tokens_, keep, step);
    device_.copy(cache_.take_copies());
    const auto upto = [&](std::int32_t n) { return Contents(tokens_.begin(), tokens_.begin() + n); };
    if (n_done > 0) {
      EXPECT_NE(move.read, StateSlots::kNone);
      EXPECT_EQ(TestDevice::at(device_.states, move.read), upto(n_done)) << "another state at " << n_done;
    } else {
      EXPECT_EQ(move.read, StateSlots::kNone);
    }
    for (std::int32_t i = 0; i < (end + kLen - 1) / kLen; ++i) {
      Contents& block = TestDevice::at(device_.blocks, table.blocks_of(0)[static_cast<std::size_t>(i)].value);
      if ((i + 1) * kLen <= table.n_found_blocks * kLen || (i + 1) * kLen <= n_done)
        EXPECT_EQ(block, upto((i + 1) * kLen)) << "block " << i;
      else
        block = upto(std::min(end, (i + 1) * kLen));
    }
    TestDevice::at(device_.states, move.write) = upto(end);
    cache_.advance_state(table, end - n_done);
    n_done = end;
    cache_.publish(table, tokens_, end, ++step);
    return true;
  }
  void end() { cache_.release(table, tokens_, is_ready ? n_done : n_done / kLen * kLen, step); }

  BlockTable table;
  std::int32_t n_done = 0;
  std::int32_t n_had_keys = 0;
  bool is_ready = false;
  KvCache::FoundState found;
  static inline std::int64_t step = 0;

 private:
  KvCache& cache_;
  TestDevice& device_;
  std::vector<TokenId> tokens_;
};

/// Computes a prompt that leaves a snapshot at `stop`. Returns what it continued from.
KvCache::FoundState run_tiered(KvCache& cache, TestDevice& device, const std::vector<TokenId>& tokens, std::int32_t stop) {
  TieredRunner runner(cache, device, tokens);
  while (!runner.load(4)) {
  }
  if (runner.n_done < stop) {
    EXPECT_TRUE(runner.run(stop));
    EXPECT_TRUE(runner.run(runner.size(), KeepState::yes));
  } else {
    EXPECT_TRUE(runner.run(runner.size()));
  }
  runner.end();
  check_all(cache, {});
  return runner.found;
}

TEST(KvCacheStateTier, keys_and_state_come_back_together) {
  const KvCacheOptions options = tiered_cache(4, 1, 12, 30, 3);
  KvCache cache(options);
  TestDevice device(options);
  const auto prompt = count_up(1, 170);
  run_tiered(cache, device, prompt, 144);
  run_tiered(cache, device, count_up(1000, 170), 144);  // evicts nearly all of the first
  EXPECT_GE(cache.state_tier()->n_entries(), 1);
  const KvCache::FoundState found = run_tiered(cache, device, prompt, 144);
  EXPECT_EQ(found.n_tokens, 144);
  EXPECT_LT(found.n_on_device, 32);
  EXPECT_EQ(cache.state_tier()->n_loaded(), 1);
  EXPECT_EQ(cache.tier()->n_loaded() * kLen, 144 - 16) << "keys after the snapshot are computed again";
  // It is a snapshot of the cache now.
  EXPECT_EQ(run_tiered(cache, device, prompt, 144).n_on_device, 144);
  cache.drop_cached();
  EXPECT_EQ(run_tiered(cache, device, prompt, 144).n_tokens, 0);
}

TEST(KvCacheStateTier, a_state_comes_back_to_keys_that_stayed) {
  const KvCacheOptions options = tiered_cache(2, 1, 100, 30, 3);
  KvCache cache(options);
  TestDevice device(options);
  run_tiered(cache, device, count_up(1, 120), 96);
  run_tiered(cache, device, count_up(1000, 220), 192);  // there is one slot beside that of the sequence
  const KvCache::FoundState found = run_tiered(cache, device, count_up(1, 120), 96);
  EXPECT_EQ(found.n_on_device, 0);
  EXPECT_EQ(found.n_tokens, 96);
  EXPECT_EQ(cache.tier()->n_loaded(), 0);
}

TEST(KvCacheStateTier, keys_without_a_state_are_not_loaded) {
  const KvCacheOptions options = tiered_cache(8, 1, 12, 60, 1);
  KvCache cache(options);
  TestDevice device(options);
  run_tiered(cache, device, count_up(1, 100), 64);
  for (TokenId i = 1; i < 4; ++i) run_tiered(cache, device, count_up(1000 * i, 190), 160);
  EXPECT_GT(cache.tier()->n_entries(), 12);
  EXPECT_EQ(run_tiered(cache, device, count_up(1, 100), 64).n_tokens, 0) << "its state made room for one that saves more";
  EXPECT_EQ(cache.tier()->n_loaded(), 0);
}

TEST(KvCacheStateTier, a_snapshot_that_was_found_waits_for_a_sequence_without_rows) {
  const KvCacheOptions options = tiered_cache(3, 2, 100, 30, 3);
  KvCache cache(options);
  TestDevice device(options);
  run_tiered(cache, device, count_up(1, 60), 48);
  TieredRunner waiting(cache, device, count_up(1, 70));
  ASSERT_TRUE(waiting.load(4));
  EXPECT_EQ(waiting.n_done, 48);
  for (TokenId i = 1; i < 5; ++i) {
    TieredRunner other(cache, device, count_up(1000 * i, 90));
    ASSERT_TRUE(other.load(4));
    EXPECT_TRUE(other.run(80));
    EXPECT_TRUE(other.run(90, KeepState::yes)) << "it finds no slot for a snapshot";
    other.end();
    check_all(cache, {&waiting.table});
  }
  EXPECT_TRUE(waiting.run(70));
  waiting.end();
  check_all(cache, {});
}

TEST(KvCacheStateTier, random_commands_begin_every_run_with_the_state_of_its_tokens) {
  std::mt19937 rng(11);
  std::int64_t n_loaded = 0;
  for (int round = 0; round < 40; ++round) {
    const std::int32_t n_owners = 1 + static_cast<std::int32_t>(rng() % 4);
    const KvCacheOptions options =
        tiered_cache(n_owners + static_cast<std::int32_t>(rng() % 4), n_owners, 30 + static_cast<std::int32_t>(rng() % 40),
                     1 + static_cast<std::int32_t>(rng() % 60), 1 + static_cast<std::int32_t>(rng() % 6));
    KvCache cache(options);
    TestDevice device(options);
    std::vector<std::unique_ptr<TieredRunner>> runners;
    for (int command = 0; command < 300; ++command) {
      const auto what = rng() % 10;
      const bool has_room = static_cast<std::int32_t>(runners.size()) < n_owners && cache.can_begin_state(TieredRunner::step);
      if (what < 4 && has_room) {
        auto tokens = count_up(1, 16 * (rng() % 6));
        const auto branch = static_cast<TokenId>(1000 * (1 + rng() % 4));
        const auto more = count_up(branch, 8 + rng() % 90);
        tokens.insert(tokens.end(), more.begin(), more.end());
        runners.push_back(std::make_unique<TieredRunner>(cache, device, tokens));
      } else if (what < 9 && !runners.empty()) {
        TieredRunner& runner = *runners[rng() % runners.size()];
        if (!runner.is_ready) {
          runner.load(1 + static_cast<std::int32_t>(rng() % 4));
        } else if (runner.n_done < runner.size()) {
          const auto n = static_cast<std::int32_t>(rng() % 3 == 0 ? 16 - runner.n_done % 16 : 1 + rng() % 40);
          runner.run(std::min(runner.size(), runner.n_done + n), rng() % 2 == 0 ? KeepState::yes : KeepState::until_next);
        }
      } else if (!runners.empty()) {
        const auto at = runners.begin() + static_cast<std::ptrdiff_t>(rng() % runners.size());
        (*at)->end();
        runners.erase(at);
      }
      std::vector<const BlockTable*> tables;
      for (const auto& runner : runners) tables.push_back(&runner->table);
      cache.check_invariants(tables);
      if (HasFailure()) return;
    }
    n_loaded += cache.state_tier()->n_loaded();
    for (const auto& runner : runners) runner->end();
    cache.check_invariants({});
    cache.drop_cached();
    EXPECT_EQ(cache.states()->n_free(), cache.states()->n_slots()) << "a slot leaked";
    EXPECT_EQ(cache.state_tier()->n_entries(), 0);
  }
  EXPECT_GT(n_loaded, 100) << "the load was too light to show anything";
}

}  // namespace
}  // namespace baton
