/// Block hashes: what they depend on, and that they are the same on every machine.
#include "engine/cache/block_hash.h"

#include <numeric>
#include <set>

#include <gtest/gtest.h>

namespace baton {
namespace {

std::vector<BlockHash> hashes_of(const CacheScope& scope, const std::vector<TokenId>& tokens, std::int32_t block_len = 4) {
  std::vector<BlockHash> hashes;
  extend_hashes(scope, tokens, block_len, hashes);
  return hashes;
}

std::vector<TokenId> iota(std::size_t n) {
  std::vector<TokenId> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(BlockHash, is_made_for_full_blocks_only) {
  EXPECT_EQ(hashes_of({}, iota(3)).size(), 0u);
  EXPECT_EQ(hashes_of({}, iota(4)).size(), 1u);
  EXPECT_EQ(hashes_of({}, iota(11)).size(), 2u);
}

TEST(BlockHash, is_the_same_when_made_in_pieces) {
  const std::vector<TokenId> tokens = iota(40);
  std::vector<BlockHash> hashes;
  for (const std::size_t n : {3, 8, 9, 24, 40}) extend_hashes({}, std::span(tokens).first(n), 4, hashes);
  EXPECT_EQ(hashes, hashes_of({}, tokens));
}

TEST(BlockHash, depends_on_every_token_before) {
  const std::vector<TokenId> tokens = iota(12);
  const auto plain = hashes_of({}, tokens);
  std::set<BlockHash> last{plain.back()};
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::vector<TokenId> changed = tokens;
    changed[i] += 100;
    const auto hashes = hashes_of({}, changed);
    for (std::size_t block = 0; block < hashes.size(); ++block) EXPECT_EQ(hashes[block] == plain[block], block < i / 4);
    EXPECT_TRUE(last.insert(hashes.back()).second);
  }
}

TEST(BlockHash, takes_the_salt_from_the_block_it_begins_in) {
  const std::vector<TokenId> tokens = iota(16);
  const auto plain = hashes_of({}, tokens);
  for (const std::int32_t salt_from : {0, 3, 4, 5, 8, 15, 16}) {
    const auto salted = hashes_of({.adapter = "", .salt = "tenant", .salt_from = salt_from}, tokens);
    for (std::size_t block = 0; block < plain.size(); ++block) {
      EXPECT_EQ(salted[block] == plain[block], static_cast<std::int32_t>(block) < salt_from / 4) << salt_from << ' ' << block;
    }
  }
}

TEST(BlockHash, tells_scopes_apart_from_the_first_block) {
  const std::vector<TokenId> tokens = iota(4);
  std::set<BlockHash> seen;
  for (const char* adapter : {"", "a", "b"}) {
    for (const char* salt : {"", "a", "b", "ab"})
      seen.insert(hashes_of({.adapter = adapter, .salt = salt, .salt_from = 0}, tokens)[0]);
  }
  EXPECT_EQ(seen.size(), 12u);
}

TEST(BlockHash, does_not_collide_over_many_blocks) {
  std::set<BlockHash> seen;
  for (TokenId first = 0; first < 200; ++first) {
    for (TokenId second = 0; second < 200; ++second) seen.insert(hashes_of({}, {first, second}, 2)[0]);
  }
  EXPECT_EQ(seen.size(), 40000u);
}

}  // namespace
}  // namespace baton
