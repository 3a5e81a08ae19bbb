/// A prompt that is shared until it is continued.
#include "engine/schedule/sequence_tokens.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(SequenceTokens, shares_the_prompt_until_a_token_follows_it) {
  const SharedList<TokenId> prompt = {1, 2, 3};
  SequenceTokens a(prompt);
  const SequenceTokens b(prompt);
  EXPECT_EQ(a.data(), prompt.data());
  EXPECT_EQ(b.data(), prompt.data());
  for (TokenId token = 4; token < 100; ++token) a.push_back(token);
  EXPECT_EQ(a.size(), 99u);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i], static_cast<TokenId>(i + 1));
  EXPECT_EQ(b, (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(b.data(), prompt.data());
}

TEST(SequenceTokens, keeps_its_tokens_when_it_is_moved) {
  SequenceTokens shared(SharedList<TokenId>{1, 2});
  SequenceTokens own(SharedList<TokenId>{1, 2});
  own.push_back(3);
  SequenceTokens moved = std::move(shared);
  EXPECT_EQ(moved, (std::vector<TokenId>{1, 2}));
  moved = std::move(own);
  EXPECT_EQ(moved, (std::vector<TokenId>{1, 2, 3}));
  moved.push_back(4);
  EXPECT_EQ(moved, (std::vector<TokenId>{1, 2, 3, 4}));
}

TEST(SequenceTokens, begins_empty) {
  SequenceTokens tokens;
  EXPECT_TRUE(tokens.empty());
  tokens.push_back(7);
  EXPECT_EQ(tokens, (std::vector<TokenId>{7}));
  EXPECT_EQ(tokens.end() - tokens.begin(), 1);
}

}  // namespace
}  // namespace baton
