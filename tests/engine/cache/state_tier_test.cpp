/// StateTier: which snapshots stay in host memory, the copies that it lists, and snapshots found and lost.
#include "engine/cache/state_tier.h"

#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr std::int32_t kTokens = 4;

/// A prompt's blocks.
struct Path {
  explicit Path(TokenId first, std::size_t n_blocks = 20) {
    for (std::size_t i = 0; i < n_blocks * kTokens; ++i) tokens.push_back(first + static_cast<TokenId>(i));
    extend_hashes(CacheScope{}, tokens, kTokens, hashes);
  }
  PrefixKey key() const { return {tokens, hashes}; }
  /// The snapshot after `n_blocks` of them leaves slot `slot`; the one before it is after `n_before`.
  StateTier::Leaving leaving(std::int32_t n_blocks, std::int32_t slot, std::int32_t n_before = 0,
                             std::uint32_t n_reuses = 0) const {
    const auto i = static_cast<std::size_t>(n_blocks - 1);
    return {.hash = hashes[i],
            .tokens = std::span(tokens).subspan(i * kTokens, kTokens),
            .before = n_before > 0 ? std::optional(hashes[static_cast<std::size_t>(n_before - 1)]) : std::nullopt,
            .n_saved = (n_blocks - n_before) * kTokens,
            .n_reuses = n_reuses,
            .device_slot = slot};
  }
  std::vector<TokenId> tokens;
  std::vector<BlockHash> hashes;
};

TierCopy copy_of(TierCopy::Kind kind, std::int32_t device_slot, std::int32_t host_slot) {
  return {kind, TierCopy::kStates, BlockId{device_slot}, host_slot};
}

TEST(StateTier, lists_a_save_and_a_load_and_keeps_what_it_loads) {
  StateTier tier(2, kTokens);
  const Path path(1);
  tier.save(path.leaving(3, 7));
  EXPECT_EQ(tier.take_copies(), std::vector{copy_of(TierCopy::Kind::save, 7, 0)});
  EXPECT_EQ(tier.find_last(path.key(), 0, 20), 3);
  EXPECT_EQ(tier.find_last(path.key(), 3, 20), 0) << "not beyond it";
  EXPECT_EQ(tier.find_last(path.key(), 0, 2), 0);
  EXPECT_EQ(tier.load(tier.hold(path.key(), 3), 9), 1U) << "found once";
  EXPECT_EQ(tier.take_copies(), std::vector{copy_of(TierCopy::Kind::load, 9, 0)});
  tier.save(path.leaving(3, 9));
  EXPECT_TRUE(tier.take_copies().empty()) << "it is there";
  EXPECT_EQ(tier.n_saved(), 1);
  EXPECT_EQ(tier.n_loaded(), 1);
  tier.check_invariants();
}

TEST(StateTier, compares_tokens_too) {
  StateTier tier(2, kTokens);
  const Path path(1);
  tier.save(path.leaving(3, 7));
  Path other = path;
  other.tokens[2 * kTokens] = 99;
  EXPECT_FALSE(tier.has_after(other.key(), 3));
  EXPECT_TRUE(tier.has_after(path.key(), 3));
  EXPECT_FALSE(tier.has_after(path.key(), 0));
  EXPECT_FALSE(tier.has_after(path.key(), 21));
}

TEST(StateTier, gives_up_the_one_that_saves_least_which_may_be_the_new_one) {
  StateTier tier(2, kTokens);
  const Path a(1), b(1000), c(2000), d(3000);
  tier.save(a.leaving(10, 0));
  tier.save(b.leaving(5, 1));
  tier.save(c.leaving(2, 2));
  EXPECT_FALSE(tier.has(c.hashes[1])) << "it saves less than both";
  EXPECT_EQ(tier.n_forgotten(), 0);
  tier.save(c.leaving(6, 2));
  EXPECT_TRUE(tier.has(c.hashes[5]));
  EXPECT_FALSE(tier.has(b.hashes[4]));
  EXPECT_EQ(tier.n_forgotten(), 1);
  // What is often found stays, and what has long not been found goes.
  tier.load(tier.hold(c.key(), 6), 0);
  for (int i = 0; i < 20; ++i) tier.save(d.leaving(1 + i % 15, 3));
  EXPECT_FALSE(tier.has(a.hashes[9]));
  tier.check_invariants();
}

TEST(StateTier, counts_reuses_on_the_device) {
  StateTier tier(2, kTokens);
  const Path a(1), b(1000), c(2000);
  tier.save(a.leaving(4, 0, 0, 7));
  tier.save(b.leaving(5, 1));
  tier.save(c.leaving(6, 2));
  EXPECT_TRUE(tier.has(a.hashes[3])) << "four times its tokens";
  EXPECT_FALSE(tier.has(b.hashes[4]));
}

TEST(StateTier, what_follows_a_lost_one_saves_its_tokens) {
  StateTier tier(2, kTokens);
  const Path a(1), b(1000), c(2000), d(3000);
  tier.save(a.leaving(10, 0));
  tier.save(a.leaving(12, 1, 10));  // 2 blocks
  tier.save(b.leaving(11, 2));      // takes the place of the later one
  EXPECT_FALSE(tier.has(a.hashes[11]));
  StateTier other(2, kTokens);
  other.save(a.leaving(12, 1, 10));
  other.save(a.leaving(10, 0, 9, 0));  // 1 block; it goes first, and the one after it is worth 3
  other.save(b.leaving(2, 2));
  EXPECT_FALSE(other.has(a.hashes[9]));
  other.save(c.leaving(2, 3));
  EXPECT_TRUE(other.has(a.hashes[11]));
  EXPECT_FALSE(other.has(b.hashes[1]) && other.has(c.hashes[1]));
  // One that is refused is lost as well.
  StateTier third(1, kTokens);
  third.save(d.leaving(12, 1, 10));
  third.save(d.leaving(10, 0, 9));
  EXPECT_TRUE(third.has(d.hashes[11]));
  third.save(c.leaving(2, 3));
  EXPECT_TRUE(third.has(d.hashes[11])) << "it saves three blocks now";
  third.check_invariants();
}

TEST(StateTier, keeps_what_is_about_to_be_loaded) {
  StateTier tier(1, kTokens);
  const Path a(1), b(1000);
  tier.save(a.leaving(1, 0));
  const std::int32_t held = tier.hold(a.key(), 1);
  tier.save(b.leaving(20, 1));
  EXPECT_FALSE(tier.has(b.hashes[19]));
  tier.load(held, 1);
  tier.save(b.leaving(20, 1));
  EXPECT_TRUE(tier.has(b.hashes[19]));
}

TEST(StateTier, forgets_everything_at_once) {
  StateTier tier(3, kTokens);
  const Path a(1);
  for (const std::int32_t n : {2, 4, 6}) tier.save(a.leaving(n, n));
  EXPECT_EQ(tier.n_entries(), 3);
  tier.clear();
  EXPECT_EQ(tier.n_entries(), 0);
  EXPECT_EQ(tier.find_last(a.key(), 0, 20), 0);
  tier.check_invariants();
  tier.save(a.leaving(2, 2));
  EXPECT_EQ(tier.n_entries(), 1);
}

}  // namespace
}  // namespace baton
