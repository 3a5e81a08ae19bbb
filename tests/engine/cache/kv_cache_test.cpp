/// KvCache: by example, and random sequences in a tiny cache under several scopes.
#include "engine/cache/kv_cache.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "support/kv_tables.h"

namespace baton {
namespace {

constexpr std::int32_t kBlockLen = 4;

using testing::check_all;
using testing::count_up;

TEST(KvCache, gives_a_second_sequence_the_blocks_of_the_first) {
  KvCache cache(8, kBlockLen, true);
  const auto tokens = count_up(0, 10);
  BlockTable first, second;
  cache.begin(first, tokens, 9, 0);
  ASSERT_TRUE(cache.extend(first, 10));
  cache.publish(first, tokens, 10, 1);
  check_all(cache, {&first});
  EXPECT_EQ(first.n_cached_blocks, 2);
  EXPECT_EQ(cache.find(second, tokens, 9, 0).n_pending, 2);
  cache.begin(second, tokens, 9, 1);
  EXPECT_EQ(second.n_cached_blocks, 2);
  EXPECT_EQ(std::vector(second.blocks_of(0).begin(), second.blocks_of(0).end()),
            std::vector(first.blocks_of(0).begin(), first.blocks_of(0).begin() + 2));
  ASSERT_TRUE(cache.extend(second, 10));
  EXPECT_EQ(cache.n_used(), 4);
  check_all(cache, {&first, &second});
  cache.release(first, tokens, 10, 1);
  cache.release(second, tokens, 10, 1);
  EXPECT_EQ(cache.n_used(), 0);
  EXPECT_EQ(cache.n_cached(), 2);
  check_all(cache, {});
}

TEST(KvCache, never_matches_the_last_token_of_a_prompt) {
  KvCache cache(8, kBlockLen, true);
  const auto tokens = count_up(0, 8);
  BlockTable first, second;
  cache.begin(first, tokens, 7, 0);
  ASSERT_TRUE(cache.extend(first, 8));
  cache.release(first, tokens, 8, 0);
  cache.begin(second, tokens, 7, 1);
  EXPECT_EQ(second.n_cached_blocks, 1);
  cache.release(second, tokens, 4, 1);
}

TEST(KvCache, keeps_a_finished_duplicate_private_and_frees_it_at_the_end) {
  KvCache cache(8, kBlockLen, true);
  const auto tokens = count_up(0, 8);
  auto longer = tokens;
  for (const TokenId token : count_up(50, 4)) longer.push_back(token);
  BlockTable first, second;
  cache.begin(first, tokens, 7, 0);
  cache.begin(second, longer, 11, 0);
  ASSERT_TRUE(cache.extend(first, 8));
  ASSERT_TRUE(cache.extend(second, 12));
  cache.publish(first, tokens, 8, 1);
  cache.publish(second, longer, 12, 1);
  EXPECT_EQ(second.n_cached_blocks, 0);
  EXPECT_EQ(cache.n_cached(), 2);
  check_all(cache, {&first, &second});
  cache.release(second, longer, 12, 1);
  EXPECT_EQ(cache.n_cached(), 3);
  EXPECT_EQ(cache.n_used(), 2);
  check_all(cache, {&first});
  cache.release(first, tokens, 8, 1);
  BlockTable third;
  EXPECT_EQ(cache.find(third, longer, 12, 1).n_ready, 3);
  EXPECT_EQ(cache.n_used(), 0);
  check_all(cache, {});
}

TEST(KvCache, evicts_to_extend_and_refuses_whole_when_it_cannot) {
  KvCache cache(4, kBlockLen, true);
  const auto old = count_up(0, 16);
  BlockTable first, second, third;
  cache.begin(first, old, 15, 0);
  ASSERT_TRUE(cache.extend(first, 16));
  cache.release(first, old, 16, 0);
  EXPECT_EQ(cache.n_available(), 4);
  const auto fresh = count_up(100, 12);
  cache.begin(second, fresh, 11, 1);
  ASSERT_TRUE(cache.extend(second, 12));
  EXPECT_EQ(cache.n_cached(), 1);
  const auto more = count_up(200, 8);
  cache.begin(third, more, 7, 1);
  EXPECT_FALSE(cache.extend(third, 8));
  EXPECT_TRUE(third.blocks_of(0).empty());
  EXPECT_EQ(cache.n_cached(), 1);
  EXPECT_TRUE(cache.extend(third, 4));
  check_all(cache, {&second, &third});
}

TEST(KvCache, pins_whole_blocks_and_counts_them_as_used) {
  KvCache cache(4, kBlockLen, true);
  const auto tokens = count_up(0, 10);
  BlockTable table;
  cache.begin(table, tokens, 9, 0);
  ASSERT_TRUE(cache.extend(table, 10));
  cache.release(table, tokens, 8, 0);
  const KvCache::Pin pin = cache.pin({}, tokens);
  EXPECT_EQ(pin.n_blocks, 2);
  EXPECT_EQ(cache.n_used(), 2);
  EXPECT_EQ(cache.n_pinned(), 2);
  BlockTable other;
  const auto strange = count_up(90, 12);
  cache.begin(other, strange, 11, 1);
  EXPECT_FALSE(cache.extend(other, 12));
  cache.release(other, strange, 0, 1);
  cache.unpin(pin);
  EXPECT_EQ(cache.n_used(), 0);
  check_all(cache, {});
}

TEST(KvCache, drops_what_is_cached_but_not_what_is_used_or_pinned) {
  KvCache cache(8, kBlockLen, true);
  const auto used = count_up(0, 8), kept = count_up(100, 4), unused = count_up(200, 8);
  BlockTable running;
  cache.begin(running, used, 7, 0);
  ASSERT_TRUE(cache.extend(running, 8));
  cache.publish(running, used, 8, 0);
  for (const auto& tokens : {kept, unused}) {
    BlockTable ended;
    cache.begin(ended, tokens, static_cast<std::int32_t>(tokens.size()), 0);
    ASSERT_TRUE(cache.extend(ended, static_cast<std::int32_t>(tokens.size())));
    cache.release(ended, tokens, static_cast<std::int32_t>(tokens.size()), 0);
  }
  const KvCache::Pin pin = cache.pin({}, kept);
  EXPECT_EQ(cache.n_cached(), 5);
  cache.drop_cached();
  EXPECT_EQ(cache.n_cached(), 3);
  EXPECT_EQ(cache.free_blocks(0).size(), 5u);
  BlockTable other;
  EXPECT_EQ(cache.find(other, unused, 8, 1).n_ready, 0);
  BlockTable again;
  EXPECT_EQ(cache.find(again, kept, 4, 1).n_ready, 1);
  check_all(cache, {&running});
  cache.unpin(pin);
  cache.release(running, used, 8, 1);
  cache.drop_cached();
  EXPECT_EQ(cache.n_cached(), 0);
  check_all(cache, {});
  KvCache uncached(8, kBlockLen, false);
  uncached.drop_cached();
  EXPECT_EQ(uncached.free_blocks(0).size(), 8u);
}

TEST(KvCache, without_prefix_caching_shares_and_keeps_nothing) {
  KvCache cache(4, kBlockLen, false);
  const auto tokens = count_up(0, 8);
  BlockTable first, second;
  cache.begin(first, tokens, 7, 0);
  ASSERT_TRUE(cache.extend(first, 8));
  cache.publish(first, tokens, 8, 0);
  cache.begin(second, tokens, 7, 5);
  EXPECT_TRUE(second.blocks_of(0).empty());
  check_all(cache, {&first, &second});
  cache.release(first, tokens, 8, 0);
  EXPECT_EQ(cache.n_available(), 4);
  check_all(cache, {&second});
}

TEST(KvCache, shortens_private_blocks_only) {
  KvCache cache(8, kBlockLen, true);
  const auto tokens = count_up(0, 8);
  BlockTable table;
  cache.begin(table, tokens, 7, 0);
  ASSERT_TRUE(cache.extend(table, 20));
  cache.publish(table, tokens, 8, 0);
  cache.shorten(table, 9);
  EXPECT_EQ(table.blocks_of(0).size(), 3u);
  cache.shorten(table, 0);
  EXPECT_EQ(table.blocks_of(0).size(), 2u);
  check_all(cache, {&table});
}

/// The contents that the storage would have: the last writer of each block. A shared block must hold exactly the
/// tokens that each of its sharers expects.
struct RandomLoad {
  struct Live {
    BlockTable table;
    std::vector<TokenId> tokens;
    std::int32_t n_filled = 0;
  };

  explicit RandomLoad(std::uint32_t seed, bool caching, std::int32_t n_tier_slots = 0)
      : rng(seed),
        cache({.block_len = kBlockLen,
               .groups = {{.n_blocks = 12}},
               .enable_prefix_caching = caching,
               .n_tier_slots = n_tier_slots}),
        content(12),
        n_most_live(n_tier_slots > 0 ? 2 : 6) {}

  /// As the device does between two steps.
  void carry_out_copies() {
    for (const TierCopy& copy : cache.take_copies()) {
      std::string& block = content[static_cast<std::size_t>(copy.block.value)];
      std::string& slot = tier_content[copy.slot];
      copy.kind == TierCopy::Kind::save ? slot = block : block = slot;
    }
  }
  /// Loads what follows a newly begun table's blocks, and maybe less than there is.
  void load(Live& live, std::int64_t step) {
    const auto n = static_cast<std::int32_t>(live.tokens.size());
    const std::int32_t first = live.table.n_cached_blocks;
    const std::int32_t n_wanted =
        cache.n_in_tier(live.table, live.tokens, n - 1, first, 1 + static_cast<std::int32_t>(rng() % 4));
    if (n_wanted == 0 || !cache.extend(live.table, (first + n_wanted) * kBlockLen)) return;
    const std::int32_t n_loaded = cache.load(live.table, live.tokens, first, n_wanted, step);
    carry_out_copies();
    ASSERT_EQ(live.table.n_cached_blocks, first + n_loaded) << "what was loaded is not in the tree";
    n_loaded_entries += n_loaded;
  }

  /// The text that identifies what positions [0, end) hold under a scope.
  static std::string text_of(const Live& live, std::int32_t end) {
    std::string text = live.table.scope.adapter + "|";
    const bool salted = !live.table.scope.salt.empty() && end > live.table.scope.salt_from;
    for (std::int32_t i = 0; i < end; ++i) text += std::to_string(live.tokens[static_cast<std::size_t>(i)]) + ",";
    return text + (salted ? live.table.scope.salt : "");
  }
  void check_shared(const Live& live) {
    for (std::int32_t i = 0; i < live.table.n_cached_blocks; ++i) {
      ASSERT_EQ(content[static_cast<std::size_t>(live.table.blocks_of(0)[static_cast<std::size_t>(i)].value)],
                text_of(live, (i + 1) * kBlockLen));
    }
  }
  void begin(std::int64_t step) {
    const std::vector<CacheScope> scopes{{}, {"", "x", 6}, {"", "y", 6}, {"z", "", 0}};
    Live live;
    live.table.scope = scopes[rng() % scopes.size()];
    live.tokens.resize(1 + rng() % 24);
    // Where there is a tier, prompts come back: they begin as one of four.
    const auto own = static_cast<TokenId>(cache.tier() != nullptr ? 10 * (1 + rng() % 4) : 0);
    for (TokenId& token : live.tokens) token = own + static_cast<TokenId>(rng() % (own == 0 ? 8 : 40) == 0);
    const auto n = static_cast<std::int32_t>(live.tokens.size());
    const auto found = cache.find(live.table, live.tokens, n - 1, step);
    cache.begin(live.table, live.tokens, n - 1, step);
    ASSERT_EQ(found.n_ready, live.table.n_cached_blocks);
    ASSERT_LT(live.table.n_cached_blocks * kBlockLen, n);
    ASSERT_NO_FATAL_FAILURE(load(live, step));
    live.n_filled = live.table.n_cached_blocks * kBlockLen;
    check_shared(live);
    all.push_back(std::move(live));
  }
  void fill(Live& live, std::int64_t step) {
    const auto n =
        std::min(static_cast<std::int32_t>(live.tokens.size()), live.n_filled + 1 + static_cast<std::int32_t>(rng() % 9));
    const std::int32_t before = cache.n_available();
    const auto n_blocks = live.table.blocks_of(0).size();
    if (!cache.extend(live.table, n)) {
      ASSERT_LT(before, cache.n_blocks_for(n) - static_cast<std::int32_t>(n_blocks));
      return;
    }
    carry_out_copies();
    for (std::int32_t i = live.n_filled; i < n; ++i) {
      const BlockId block = live.table.blocks_of(0)[static_cast<std::size_t>(i / kBlockLen)];
      ASSERT_GE(i / kBlockLen, live.table.n_cached_blocks) << "a shared block would be written";
      if ((i + 1) % kBlockLen == 0)
        content[static_cast<std::size_t>(block.value)] = text_of(live, i + 1);
      else
        content[static_cast<std::size_t>(block.value)].clear();
    }
    live.n_filled = n;
    cache.publish(live.table, live.tokens, n, step + 1);
    if (rng() % 3 == 0) live.tokens.push_back(static_cast<TokenId>(rng() % 8 == 0));
  }
  void run(int n_rounds) {
    for (std::int64_t step = 0; step < n_rounds; ++step) {
      const auto choice = rng() % 8;
      if (choice < 2 && all.size() < n_most_live) {
        ASSERT_NO_FATAL_FAILURE(begin(step));
      } else if (choice < 6 && !all.empty()) {
        ASSERT_NO_FATAL_FAILURE(fill(all[rng() % all.size()], step));
      } else if (choice == 6 && !all.empty()) {
        const std::size_t which = rng() % all.size();
        cache.release(all[which].table, all[which].tokens, all[which].n_filled, step + 1);
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(which));
      } else if (choice == 7 && cache.has_prefix_caching()) {
        if (!pins.empty() && rng() % 3 != 0) {
          cache.unpin(pins.front());
          pins.erase(pins.begin());
        } else if (pins.size() < 2 && !all.empty()) {
          const Live& live = all[rng() % all.size()];
          pins.push_back(cache.pin(live.table.scope, live.tokens));
        }
      }
      std::vector<const BlockTable*> tables;
      for (const Live& live : all) {
        ASSERT_NO_FATAL_FAILURE(check_shared(live));
        tables.push_back(&live.table);
      }
      cache.check_invariants(tables);
      if (::testing::Test::HasFailure()) return;
    }
    for (Live& live : all) cache.release(live.table, live.tokens, live.n_filled, n_rounds + 1);
    for (const auto& pin : pins) cache.unpin(pin);
    ASSERT_EQ(cache.n_used(), 0);
    cache.check_invariants({});
  }

  std::mt19937 rng;
  KvCache cache;
  std::vector<std::string> content;
  std::size_t n_most_live;  ///< few where there is a tier, so that blocks are evicted
  std::map<std::int32_t, std::string> tier_content;
  std::int64_t n_loaded_entries = 0;
  std::vector<Live> all;
  std::vector<KvCache::Pin> pins;
};

TEST(KvCache, never_shares_a_block_that_holds_something_else_over_random_operations) {
  for (const std::uint32_t seed : {1u, 2u, 3u, 4u, 5u}) RandomLoad(seed, true).run(4000);
}

TEST(KvCache, never_loads_into_a_block_something_else_over_random_operations) {
  for (const std::int32_t n_slots : {1, 6, 40}) {
    RandomLoad load(static_cast<std::uint32_t>(n_slots), true, n_slots);
    load.run(8000);
    EXPECT_GT(load.n_loaded_entries, n_slots == 1 ? 5 : 100) << n_slots;
    EXPECT_EQ(load.cache.tier()->n_loaded(), load.n_loaded_entries);
    EXPECT_LE(load.cache.tier()->n_entries(), n_slots);
    load.cache.drop_cached();
    EXPECT_EQ(load.cache.tier()->n_entries(), 0);
  }
}

TEST(KvCache, loads_what_it_evicted_and_publishes_it) {
  KvCache cache({.block_len = kBlockLen, .groups = {{.n_blocks = 4}}, .n_tier_slots = 8});
  const auto old = count_up(0, 14), fresh = count_up(100, 14);
  BlockTable first, second, third, fourth;
  cache.begin(first, old, 13, 0);
  ASSERT_TRUE(cache.extend(first, 14));
  cache.release(first, old, 14, 0);
  EXPECT_EQ(cache.n_in_tier(third, old, 13, 0, 9), 0) << "only what was evicted is there";
  cache.begin(second, fresh, 13, 1);
  ASSERT_TRUE(cache.extend(second, 14));
  const auto saved = cache.take_copies();
  EXPECT_EQ(saved.size(), 3u) << "the full blocks, and not the one that only its sequence had";
  cache.release(second, fresh, 14, 2);
  cache.begin(third, old, 13, 3);
  EXPECT_EQ(third.n_cached_blocks, 0);
  EXPECT_EQ(cache.n_in_tier(third, old, 13, 0, 9), 3);
  EXPECT_EQ(cache.n_in_tier(third, old, 13, 0, 2), 2);
  ASSERT_TRUE(cache.extend(third, 8));
  EXPECT_EQ(cache.load(third, old, 0, 2, 3), 2);
  EXPECT_EQ(third.n_cached_blocks, 2);
  check_all(cache, {&third});
  EXPECT_EQ(cache.find(fourth, old, 13, 3).n_ready, 2) << "another sequence of the same step finds them";
  EXPECT_EQ(cache.n_in_tier(third, old, 13, 2, 9), 1);
  ASSERT_TRUE(cache.extend(third, 12));
  EXPECT_EQ(cache.load(third, old, 2, 1, 4), 1);
  check_all(cache, {&third});
  // The copies of one list: what the loads take the place of is saved first.
  std::vector<TierCopy::Kind> kinds;
  for (const TierCopy& copy : cache.take_copies()) kinds.push_back(copy.kind);
  using enum TierCopy::Kind;
  EXPECT_EQ(kinds, (std::vector{save, load, load, save, load}));
  cache.release(third, old, 12, 5);
  EXPECT_EQ(cache.n_used(), 0);
}

TEST(KvCacheDeathTest, aborts_on_a_load_that_the_table_has_no_blocks_for) {
  KvCache cache({.block_len = kBlockLen, .groups = {{.n_blocks = 4}}, .n_tier_slots = 8});
  const auto tokens = count_up(0, 9);
  BlockTable table;
  cache.begin(table, tokens, 8, 0);
  EXPECT_DEATH(cache.load(table, tokens, 0, 1, 0), "blocks that the table shares or lacks");
  EXPECT_DEATH(KvCache({.groups = {{.n_blocks = 4, .window = 16}}, .n_tier_slots = 8}), "groups with a window");
}

TEST(KvCache, without_caching_passes_the_same_random_operations) { RandomLoad(9, false).run(4000); }

}  // namespace
}  // namespace baton
