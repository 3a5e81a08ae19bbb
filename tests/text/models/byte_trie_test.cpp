/// Tests of byte tries.
#include "text/models/byte_trie.h"

#include <map>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ByteTrie, an_empty_one_has_nothing) {
  const ByteTrie trie;
  EXPECT_EQ(trie.longest("a").value, ByteTrie::kNone);
  EXPECT_EQ(trie.child(ByteTrie::kRoot, 'a'), ByteTrie::kNone);
  EXPECT_FALSE(trie.may_begin('a'));
}

TEST(ByteTrie, finds_the_longest_beginning_and_keeps_the_last_value) {
  ByteTrie trie;
  trie.insert("ab", 1);
  trie.insert("abcd", 2);
  trie.insert("\xff", 3);
  trie.insert("ab", 4);
  EXPECT_EQ(trie.longest("abc").length, 2u);
  EXPECT_EQ(trie.longest("abc").value, 4);
  EXPECT_EQ(trie.longest("abcde").value, 2);
  EXPECT_EQ(trie.longest("\xff\xff").value, 3);
  EXPECT_EQ(trie.longest("a").value, ByteTrie::kNone);
  EXPECT_TRUE(trie.may_begin('a') && trie.may_begin('\xff'));
  EXPECT_FALSE(trie.may_begin('b') || trie.may_begin('\0'));
}

TEST(ByteTrie, equals_a_map_on_random_keys) {
  std::mt19937 random(5);
  std::map<std::string, std::int32_t> map;
  ByteTrie trie;
  const auto word = [&] {
    std::string text(1 + random() % 6, ' ');
    for (char& c : text) c = static_cast<char>("abc\0\xfe"[random() % 5]);
    return text;
  };
  for (std::int32_t i = 0; i < 2000; ++i) {
    const std::string key = word();
    map[key] = i;
    trie.insert(key, i);
  }
  for (int i = 0; i < 2000; ++i) {
    const std::string text = word();
    std::size_t length = 0;
    for (std::size_t n = 1; n <= text.size(); ++n)
      if (map.contains(text.substr(0, n))) length = n;
    const ByteTrie::Match match = trie.longest(text);
    ASSERT_EQ(match.length, length);
    ASSERT_EQ(match.value, length == 0 ? ByteTrie::kNone : map[text.substr(0, length)]);
  }
}

TEST(ByteTrie, knows_what_a_search_looked_at_and_what_may_follow) {
  ByteTrie trie;
  EXPECT_EQ(trie.longest_key(), 0u);
  EXPECT_FALSE(trie.has_children(ByteTrie::kRoot));
  trie.insert("ab", 0);
  trie.insert("abcd", 1);
  EXPECT_EQ(trie.longest_key(), 4u);
  EXPECT_EQ(trie.longest("abcx").n_visited, 4u);
  EXPECT_EQ(trie.longest("abcx").length, 2u);
  EXPECT_EQ(trie.longest("xabcd").n_visited, 1u);
  std::int32_t node = ByteTrie::kRoot;
  for (const char byte : std::string_view("abcd")) {
    EXPECT_TRUE(trie.has_children(node));
    node = trie.child(node, byte);
  }
  EXPECT_FALSE(trie.has_children(node));
}

}  // namespace
}  // namespace baton
