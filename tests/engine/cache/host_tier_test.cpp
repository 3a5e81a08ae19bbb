/// HostTier: by example, and random operations against a list of entries, with the contents that the copies leave.
#include "engine/cache/host_tier.h"

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/kv_tables.h"

namespace baton {
namespace {

constexpr std::int32_t kTierBlockLen = 4;

using testing::count_up;
using Kind = TierCopy::Kind;

/// Tokens and the hashes of their full blocks.
struct Key {
  explicit Key(std::vector<TokenId> of, const CacheScope& scope = {}) : tokens(std::move(of)) {
    extend_hashes(scope, tokens, kTierBlockLen, hashes);
  }
  PrefixKey key() const { return {tokens, hashes}; }
  std::span<const TokenId> entry(std::size_t index) const {
    return std::span(tokens).subspan(index * kTierBlockLen, kTierBlockLen);
  }
  void save(HostTier& tier, std::size_t index, std::vector<BlockId> blocks) const {
    tier.save(hashes[index], entry(index), blocks);
    tier.check_invariants();
  }
  std::vector<TokenId> tokens;
  std::vector<BlockHash> hashes;
};

TEST(HostTier, lists_a_copy_of_each_group_for_an_entry_that_it_saves_or_loads) {
  HostTier tier(3, kTierBlockLen);
  const Key key(count_up(0, 12));
  key.save(tier, 1, {BlockId{7}, BlockId{3}});
  const std::vector<TierCopy> saved = tier.take_copies();
  ASSERT_EQ(saved.size(), 2u);
  const std::int32_t slot = saved[0].slot;
  EXPECT_EQ(saved, (std::vector<TierCopy>{{Kind::save, 0, BlockId{7}, slot}, {Kind::save, 1, BlockId{3}, slot}}));
  EXPECT_EQ(tier.find(key.key(), 0, 3), 0) << "the entry before it is not here";
  EXPECT_EQ(tier.find(key.key(), 1, 3), 1);
  EXPECT_FALSE(tier.load(key.key(), 0, std::vector{BlockId{5}, BlockId{6}}));
  EXPECT_TRUE(tier.load(key.key(), 1, std::vector{BlockId{5}, BlockId{6}}));
  EXPECT_EQ(tier.take_copies(), (std::vector<TierCopy>{{Kind::load, 0, BlockId{5}, slot}, {Kind::load, 1, BlockId{6}, slot}}));
  EXPECT_TRUE(tier.take_copies().empty());
  EXPECT_EQ(tier.n_entries(), 1) << "an entry that is loaded stays";
  key.save(tier, 1, {BlockId{1}, BlockId{2}});
  EXPECT_TRUE(tier.take_copies().empty()) << "it need not be copied again";
  EXPECT_EQ(tier.n_saved(), 1);
  EXPECT_EQ(tier.n_loaded(), 1);
}

TEST(HostTier, forgets_the_least_recently_used_entry_and_the_end_of_a_prompt_before_its_beginning) {
  HostTier tier(3, kTierBlockLen);
  const Key prompt(count_up(0, 12));
  const Key other(count_up(100, 8));
  for (const std::size_t index : {2u, 1u, 0u}) prompt.save(tier, index, {BlockId{static_cast<std::int32_t>(index)}});
  EXPECT_EQ(tier.find(prompt.key(), 0, 2), 2) << "no more than was asked for";
  EXPECT_EQ(tier.find(prompt.key(), 0, 9), 3);
  other.save(tier, 0, {BlockId{8}});
  EXPECT_EQ(tier.find(prompt.key(), 0, 9), 2);
  other.save(tier, 1, {BlockId{9}});
  EXPECT_EQ(tier.find(prompt.key(), 0, 9), 2) << "an entry that was looked up is used more recently than one saved before";
  EXPECT_EQ(tier.find(other.key(), 0, 9), 0);
  EXPECT_EQ(tier.n_entries(), 3);
  EXPECT_EQ(tier.n_forgotten(), 2);
  tier.clear();
  tier.check_invariants();
  EXPECT_EQ(tier.n_entries(), 0);
  EXPECT_EQ(tier.find(other.key(), 0, 9), 0);
}

TEST(HostTier, finds_an_entry_by_its_tokens_and_its_scope) {
  HostTier tier(4, kTierBlockLen);
  const Key plain(count_up(0, 8));
  plain.save(tier, 0, {BlockId{0}});
  plain.save(tier, 1, {BlockId{1}});
  EXPECT_EQ(tier.find(Key(count_up(0, 8), {"", "salt", 5}).key(), 0, 9), 1) << "the salt applies from position 5 on";
  EXPECT_EQ(tier.find(Key(count_up(0, 8), {"", "salt", 0}).key(), 0, 9), 0);
  EXPECT_EQ(tier.find(Key(count_up(0, 8), {"adapter", "", 0}).key(), 0, 9), 0);
  // Another text with the same hash, which no text is known to have.
  Key forged(count_up(50, 8));
  forged.hashes = plain.hashes;
  EXPECT_EQ(tier.find(forged.key(), 0, 9), 0);
  EXPECT_FALSE(tier.load(forged.key(), 0, std::vector{BlockId{3}}));
  forged.save(tier, 0, {BlockId{4}});
  EXPECT_EQ(tier.find(plain.key(), 0, 9), 2) << "it cannot take the place of the first";
}

/// The entries in order of use, the last one first, and what the copies leave in blocks and slots.
TEST(HostTier, keeps_the_entries_of_a_list_and_their_contents_over_random_operations) {
  std::mt19937 rng(3);
  for (const std::int32_t n_slots : {1, 2, 7, 40}) {
    HostTier tier(n_slots, kTierBlockLen);
    std::list<std::string> used;  // texts, newest first
    std::map<std::int32_t, std::string> blocks, slots;
    const auto carry_out = [&] {
      for (const TierCopy& copy : tier.take_copies()) {
        if (copy.kind == Kind::save)
          slots[copy.slot] = blocks[copy.block.value];
        else
          blocks[copy.block.value] = slots[copy.slot];
      }
    };
    const auto text_of = [](const Key& key, std::size_t n_tokens) {
      std::string text;
      for (std::size_t i = 0; i < n_tokens; ++i) text += std::to_string(key.tokens[i]) + ",";
      return text;
    };
    const auto use = [&](const std::string& text) {
      const auto at = std::ranges::find(used, text);
      const bool is_there = at != used.end();
      if (is_there) used.erase(at);
      used.push_front(text);
      if (static_cast<std::int32_t>(used.size()) > n_slots) used.pop_back();
      return is_there;
    };
    std::int64_t n_found = 0;
    for (int round = 0; round < 3000; ++round) {
      std::vector<TokenId> tokens(4 * (1 + rng() % 5));
      for (TokenId& token : tokens) token = static_cast<TokenId>(rng() % 9 == 0);
      const Key key(tokens);
      const auto index = static_cast<std::int32_t>(rng() % key.hashes.size());
      const auto block = static_cast<std::int32_t>(rng() % 5);
      const std::string text = text_of(key, static_cast<std::size_t>(index + 1) * kTierBlockLen);
      if (rng() % 200 == 0) {
        tier.clear();
        used.clear();
      } else if (rng() % 2 == 0) {
        blocks[block] = text;
        key.save(tier, static_cast<std::size_t>(index), {BlockId{block}});
        use(text);
        carry_out();
      } else {
        const auto n_most = static_cast<std::int32_t>(rng() % 4);
        std::int32_t n = 0;
        while (n < n_most && static_cast<std::size_t>(index + n) < key.hashes.size() &&
               std::ranges::find(used, text_of(key, static_cast<std::size_t>(index + n + 1) * kTierBlockLen)) != used.end())
          ++n;
        ASSERT_EQ(tier.find(key.key(), index, n_most), n);
        for (std::int32_t i = n; i-- > 0;) use(text_of(key, static_cast<std::size_t>(index + i + 1) * kTierBlockLen));
        for (std::int32_t i = 0; i < n; ++i, ++n_found) {
          ASSERT_TRUE(tier.load(key.key(), index + i, std::vector{BlockId{block}}));
          carry_out();
          ASSERT_EQ(blocks[block], text_of(key, static_cast<std::size_t>(index + i + 1) * kTierBlockLen));
        }
      }
      tier.check_invariants();
      ASSERT_EQ(tier.n_entries(), static_cast<std::int32_t>(used.size()));
    }
    EXPECT_GT(n_found, 30) << n_slots;
  }
}

TEST(HostTierDeathTest, aborts_on_sizes_that_are_not_positive_and_on_half_a_block) {
  EXPECT_DEATH(HostTier(0, kTierBlockLen), "the sizes must be positive");
  HostTier tier(2, kTierBlockLen);
  EXPECT_DEATH(tier.save({}, count_up(0, 3), std::vector{BlockId{0}}), "one full block");
}

}  // namespace
}  // namespace baton
