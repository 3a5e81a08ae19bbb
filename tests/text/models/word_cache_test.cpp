/// Tests of the table of words.
#include "text/models/word_cache.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace baton {
namespace {

using Ids = std::vector<TokenId>;

TEST(WordCache, keeps_words_until_it_is_full) {
  WordCache cache;
  EXPECT_FALSE(cache.find("a"));
  for (std::size_t i = 0; i < WordCache::kMaxWords + 100; ++i) {
    const Ids ids(i % 3, static_cast<TokenId>(i));
    cache.insert(fmt::format("word {}", i), ids);
  }
  for (std::size_t i = 0; i < WordCache::kMaxWords; ++i) {
    const auto ids = cache.find(fmt::format("word {}", i));
    ASSERT_TRUE(ids);
    ASSERT_EQ(Ids(ids->begin(), ids->end()), Ids(i % 3, static_cast<TokenId>(i)));
  }
  EXPECT_FALSE(cache.find(fmt::format("word {}", WordCache::kMaxWords)));
}

TEST(WordCache, does_not_keep_long_words_and_empty_ones) {
  WordCache cache;
  const Ids ids = {1};
  for (const std::string& word : {std::string(), std::string(WordCache::kMaxWordBytes + 1, 'a')}) {
    cache.insert(word, ids);
    EXPECT_FALSE(cache.find(word));
  }
  cache.insert(std::string(WordCache::kMaxWordBytes, 'a'), ids);
  EXPECT_TRUE(cache.find(std::string(WordCache::kMaxWordBytes, 'a')));
}

}  // namespace
}  // namespace baton
