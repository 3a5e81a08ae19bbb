/// Proposals from a sequence's own tokens: by example, and compared with an exhaustive search.
#include "engine/request/speculation.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace baton {
namespace {

using Tokens = std::vector<TokenId>;

Tokens propose(PromptLookup& lookup, const Tokens& tokens, std::int32_t n) {
  lookup.follow(tokens);
  Tokens out;
  lookup.propose(tokens, n, out);
  return out;
}

TEST(PromptLookup, proposes_what_followed_the_last_time) {
  PromptLookup lookup(2, 4);
  EXPECT_EQ(propose(lookup, {1, 2, 3, 4, 5, 9, 2, 3}, 2), (Tokens{4, 5}));
}

TEST(PromptLookup, proposes_nothing_without_a_match_of_the_least_length) {
  PromptLookup lookup(2, 4);
  EXPECT_EQ(propose(lookup, {1, 2, 3, 9, 3}, 2), Tokens{}) << "3 alone is too short";
  EXPECT_EQ(propose(lookup, {1, 2, 3, 9, 3, 7, 8}, 2), Tokens{});
  PromptLookup empty(2, 4);
  EXPECT_EQ(propose(empty, {}, 2), Tokens{});
  EXPECT_EQ(propose(empty, {5, 5}, 2), Tokens{}) << "the end does not match itself";
}

TEST(PromptLookup, takes_the_longest_match_and_of_equal_ones_the_newest) {
  PromptLookup lookup(1, 4);
  EXPECT_EQ(propose(lookup, {7, 1, 2, 20, 9, 1, 2, 21, 8, 2, 22, 7, 1, 2}, 1), Tokens{20});
  PromptLookup newest(2, 2);
  EXPECT_EQ(propose(newest, {7, 1, 2, 20, 9, 1, 2, 21, 7, 1, 2}, 1), Tokens{21})
      << "a longer match than asked for counts no more";
}

TEST(PromptLookup, carries_a_repetition_on) {
  PromptLookup lookup(2, 4);
  EXPECT_EQ(propose(lookup, {1, 2, 3, 1, 2}, 7), (Tokens{3, 1, 2, 3, 1, 2, 3}));
  PromptLookup same(2, 4);
  EXPECT_EQ(propose(same, {5, 5, 5}, 4), (Tokens{5, 5, 5, 5}));
}

/// The longest match before the end, and the newest of several, found by trying all places.
Tokens searched(const Tokens& tokens, std::size_t min_len, std::size_t max_len, std::size_t n) {
  std::size_t best_len = min_len - 1, best = 0;
  for (std::size_t place = tokens.size() - 1; place >= 1; --place) {
    std::size_t len = 0;
    while (len < max_len && len < place && tokens[place - 1 - len] == tokens[tokens.size() - 1 - len]) ++len;
    if (len > best_len) best_len = len, best = place;
  }
  Tokens all = tokens;
  for (std::size_t i = 0; best > 0 && i < n; ++i) all.push_back(all[best + i]);
  return {all.begin() + static_cast<std::ptrdiff_t>(tokens.size()), all.end()};
}

TEST(PromptLookup, finds_what_a_search_finds_while_tokens_grow) {
  std::mt19937 rng(3);
  int n_found = 0;
  for (int round = 0; round < 60; ++round) {
    const std::int32_t min_len = 1 + static_cast<std::int32_t>(rng() % 3);
    const std::int32_t max_len = min_len + static_cast<std::int32_t>(rng() % 3);
    // So many different tokens that no chain is longer than the search limit.
    const std::uint32_t n_different = min_len == 1 ? 60 : 12;
    PromptLookup lookup(min_len, max_len);
    Tokens tokens;
    while (tokens.size() < 300) {
      const std::size_t n_new = 1 + rng() % 9;
      for (std::size_t i = 0; i < n_new; ++i) tokens.push_back(static_cast<TokenId>(rng() % n_different));
      const Tokens expected = searched(tokens, static_cast<std::size_t>(min_len), static_cast<std::size_t>(max_len), 5);
      ASSERT_EQ(propose(lookup, tokens, 5), expected) << "round " << round << ", " << tokens.size() << " tokens";
      n_found += expected.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(n_found, 500);
}

TEST(PromptLookup, refuses_tokens_that_shrank) {
  PromptLookup lookup(1, 1);
  lookup.follow(Tokens{1, 2, 3});
  EXPECT_DEATH(lookup.follow(Tokens{1, 2}), "taken away");
}

}  // namespace
}  // namespace baton
