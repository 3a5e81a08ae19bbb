/// KV events (engine/cache/kv_events.h): a reader that applies them in order knows what the cache would find.
#include "engine/cache/kv_events.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "engine/cache/kv_cache.h"

namespace baton {
namespace {

constexpr std::int32_t kEventBlockLen = 2;

/// What a listener knows: the names of the blocks of each group.
class Listener {
 public:
  void apply(const std::vector<KvEvent>& events) {
    for (const KvEvent& event : events) {
      for (const BlockHash& hash : event.hashes) {
        if (event.kind == KvEvent::Kind::stored) {
          EXPECT_TRUE(known_.insert({event.group, hash}).second) << "stored twice";
        } else {
          EXPECT_EQ(known_.erase({event.group, hash}), 1u) << "removed without having been stored";
        }
      }
      if (event.kind == KvEvent::Kind::stored) {
        EXPECT_EQ(event.tokens.size(), event.hashes.size() * kEventBlockLen);
      }
    }
  }
  bool knows(int group, const BlockHash& hash) const { return known_.contains({group, hash}); }
  std::size_t n_known() const { return known_.size(); }

 private:
  std::set<std::pair<int, BlockHash>> known_;
};

KvCache cache_of(std::vector<CacheGroup> groups) {
  return KvCache({.block_len = kEventBlockLen, .groups = std::move(groups), .max_rows_in_flight = 4, .records_events = true});
}

/// Computes the tokens as one sequence that ends at once. Returns false if there is no room.
bool compute(KvCache& cache, std::span<const TokenId> tokens, const CacheScope& scope = {}) {
  BlockTable table;
  table.scope = scope;
  const auto n = static_cast<std::int32_t>(tokens.size());
  cache.begin(table, tokens, n, 0);
  const bool fits = cache.extend(table, n);
  cache.release(table, tokens, fits ? n : table.n_cached_blocks * kEventBlockLen, 0);
  return fits;
}

TEST(KvEvents, a_prompt_is_one_event_with_its_parent_and_tokens) {
  KvCache cache = cache_of({{.n_blocks = 8}});
  const std::vector<TokenId> begin{1, 2, 3, 4};
  const std::vector<TokenId> longer{1, 2, 3, 4, 5, 6, 7};
  ASSERT_TRUE(compute(cache, begin));
  const std::vector<KvEvent> first = cache.take_events();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].kind, KvEvent::Kind::stored);
  EXPECT_EQ(first[0].parent, std::nullopt);
  EXPECT_EQ(first[0].tokens, begin);
  ASSERT_TRUE(compute(cache, longer));
  const std::vector<KvEvent> second = cache.take_events();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].parent, first[0].hashes[1]);
  EXPECT_EQ(second[0].tokens, (std::vector<TokenId>{5, 6}));  // the block that is not full is not told of
  EXPECT_TRUE(cache.take_events().empty());
  ASSERT_TRUE(compute(cache, longer));
  EXPECT_TRUE(cache.take_events().empty());  // nothing new
}

TEST(KvEvents, tell_from_where_on_a_salt_applies) {
  KvCache cache = cache_of({{.n_blocks = 8}});
  ASSERT_TRUE(compute(cache, std::vector<TokenId>{1, 2, 3, 4, 5, 6}, {.adapter = "a", .salt = "s", .salt_from = 2}));
  const std::vector<KvEvent> events = cache.take_events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].salt, "");
  EXPECT_EQ(events[0].adapter, "a");
  EXPECT_EQ(events[0].hashes.size(), 1u);
  EXPECT_EQ(events[1].salt, "s");
  EXPECT_EQ(events[1].hashes.size(), 2u);
  EXPECT_EQ(events[1].parent, events[0].hashes[0]);
}

TEST(KvEvents, without_the_option_there_are_none) {
  KvCache cache({.block_len = kEventBlockLen, .groups = {{.n_blocks = 8}}});
  ASSERT_TRUE(compute(cache, std::vector<TokenId>{1, 2, 3, 4}));
  EXPECT_TRUE(cache.take_events().empty());
}

/// Random prompts that share beginnings, in a cache that evicts all the time.
TEST(KvEvents, a_listener_knows_what_the_cache_would_find) {
  std::mt19937 random(7);
  KvCache cache = cache_of({{.n_blocks = 12}});
  Listener listener;
  for (int round = 0; round < 3000; ++round) {
    std::vector<TokenId> tokens(1 + random() % 12);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 2);
    compute(cache, tokens);
    if (random() % 200 == 0) cache.drop_cached();
    listener.apply(cache.take_events());
    ASSERT_EQ(listener.n_known(), static_cast<std::size_t>(cache.n_cached(0)));

    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 2);
    BlockTable asked;
    const PrefixTree::Found found = cache.find(asked, tokens, static_cast<std::int32_t>(tokens.size()), PrefixTree::kAnyStep);
    std::int32_t n_known = 0;
    for (const BlockHash& hash : asked.hashes) {
      if (!listener.knows(0, hash)) break;
      ++n_known;
    }
    ASSERT_EQ(n_known, found.n_ready) << "round " << round;
  }
}

TEST(KvEvents, of_a_group_with_a_window_tell_of_each_dropped_block) {
  std::mt19937 random(11);
  KvCache cache = cache_of({{.n_blocks = 40}, {.n_blocks = 14, .window = 5}});
  Listener listener;
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> tokens(1 + random() % 10);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 2);
    compute(cache, tokens);
    listener.apply(cache.take_events());
    ASSERT_EQ(listener.n_known(), static_cast<std::size_t>(cache.n_cached(0) + cache.n_cached(1))) << "round " << round;
  }
}

}  // namespace
}  // namespace baton
